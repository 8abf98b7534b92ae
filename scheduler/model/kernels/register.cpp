// Tells onnxruntime of the operators of the domain "paceline".
#include <new>

#include "ops.h"

namespace paceline {
namespace {

using ort::Functions;
using ort::Status;
using ort::Type;

template <class Op>
struct Kernel {
  Functions table;
  Op op;
};

constexpr size_t kMostInputs = 8, kMostOutputs = 3;

struct Record : ort::CustomOp {
  const char* label = nullptr;
  Type inputs[kMostInputs] = {}, outputs[kMostOutputs] = {};
  size_t inputs_count = 0, outputs_count = 0;
  bool pick = false, add = false;
};

const Record& of(const ort::CustomOp* op) { return *static_cast<const Record*>(op); }

template <class Op>
Op read(const Record&, Attributes& a) {
  return Op::read(a);
}
template <>
LinearOp read<LinearOp>(const Record& r, Attributes& a) {
  return LinearOp::read(a, r.pick, r.add);
}

template <class Op>
Status* create(const ort::CustomOp* record, Functions table, const ort::Info* info, void** kernel) {
  Attributes attributes(table, info);
  const Op op = read<Op>(of(record), attributes);
  if (attributes.missing()) return failure(table, attributes.missing());
  if (const char* fault = op.fault()) return failure(table, fault);
  void* room = std::malloc(sizeof(Kernel<Op>));
  if (!room) return failure(table, "there is no memory for a node");
  *kernel = new (room) Kernel<Op>{table, op};
  return nullptr;
}

template <class Op>
Status* compute(void* kernel, ort::Context* context) {
  const auto* k = static_cast<const Kernel<Op>*>(kernel);
  Run r(k->table, context);
  k->op.run(r);
  return r.status();
}

// A residual's memory may become the output's.
size_t residual_inplace(int** inputs, int** outputs) {
  *inputs = static_cast<int*>(std::malloc(sizeof(int)));
  *outputs = static_cast<int*>(std::malloc(sizeof(int)));
  if (!*inputs || !*outputs) return 0;
  **inputs = 2, **outputs = 0;
  return 1;
}
void release_inplace(int* inputs, int* outputs) { std::free(inputs), std::free(outputs); }

void fill(Record& r) {
  r.name = [](const ort::CustomOp* op) { return of(op).label; };
  r.provider = [](const ort::CustomOp*) -> const char* { return nullptr; };
  r.input_type = [](const ort::CustomOp* op, size_t i) { return of(op).inputs[i]; };
  r.input_count = [](const ort::CustomOp* op) { return of(op).inputs_count; };
  r.output_type = [](const ort::CustomOp* op, size_t i) { return of(op).outputs[i]; };
  r.output_count = [](const ort::CustomOp* op) { return of(op).outputs_count; };
  r.input_arity = r.output_arity = [](const ort::CustomOp*, size_t) { return ort::Arity::required; };
  r.input_memory = [](const ort::CustomOp*, size_t) { return 0; };
  r.variadic_in_min = r.variadic_in_same = r.variadic_out_min = r.variadic_out_same = [](const ort::CustomOp*) {
    return 0;
  };
  r.start_version = [](const ort::CustomOp*) { return 1; };
  r.end_version = [](const ort::CustomOp*) { return 0x7fffffff; };
  r.destroy = [](void* kernel) { std::free(kernel); };
}

template <class Op>
Record record(const char* label) {
  Record r;
  fill(r);
  r.label = label;
  r.create2 = create<Op>, r.compute2 = compute<Op>;
  return r;
}

void types(Record& r, const Type* inputs, size_t count, const Type* outputs, size_t outputs_count) {
  for (size_t i = 0; i < count; i++) r.inputs[i] = inputs[i];
  for (size_t i = 0; i < outputs_count; i++) r.outputs[i] = outputs[i];
  r.inputs_count = count, r.outputs_count = outputs_count;
}

Record linear(const char* label, bool pick, bool add) {
  Record r = record<LinearOp>(label);
  const Type inputs[] = {Type::f32, Type::i8, pick ? Type::i64 : Type::f32}, output = Type::f32;
  types(r, inputs, pick || add ? 3 : 2, &output, 1);
  r.pick = pick, r.add = add;
  if (add) r.may_inplace = residual_inplace, r.release_inplace = release_inplace;
  return r;
}

Record attention() {
  Record r = record<AttentionOp>("Attention");
  const Type inputs[] = {Type::f32, Type::f32, Type::f32, Type::i32, Type::i32, Type::i32, Type::i8, Type::i8};
  const Type output = Type::f32;
  types(r, inputs, 8, &output, 1);
  return r;
}

Record embed() {
  Record r = record<EmbedOp>("Embed");
  const Type inputs[] = {Type::i64, Type::i8}, output = Type::f32;
  types(r, inputs, 2, &output, 1);
  return r;
}

Record candidates() {
  Record r = record<CandidatesOp>("Candidates");
  const Type inputs[] = {Type::f32, Type::f32}, outputs[] = {Type::i32, Type::f32, Type::f32};
  types(r, inputs, 2, outputs, 3);
  return r;
}

}  // namespace
}  // namespace paceline

extern "C" __attribute__((visibility("default"))) ort::Status* RegisterCustomOps(ort::Options* options,
                                                                                const ort::Base* base) {
  using namespace paceline;
  const ort::Functions table = base->get_api(ort::kVersion);
  if (!table) {
    // an older interface has the function that makes a status too
    const ort::Functions old = base->get_api(1);
    return old ? failure(old, "this onnxruntime is older than 1.18, which the operators need") : nullptr;
  }
  static Record records[] = {linear("Linear", false, false), linear("LinearAdd", false, true),
                             linear("LinearPick", true, false), attention(), embed(), candidates()};
  static ort::Domain* domain = nullptr;  // lives as long as the library
  if (!domain) {
    if (auto* s = ort::function<ort::Status*(const char*, ort::Domain**)>(table, ort::kCreateDomain)("paceline", &domain))
      return s;
    for (Record& r : records)
      if (auto* s = ort::function<ort::Status*(ort::Domain*, const ort::CustomOp*)>(table, ort::kDomainAdd)(domain, &r))
        return s;
  }
  return ort::function<ort::Status*(ort::Options*, ort::Domain*)>(table, ort::kAddDomain)(options, domain);
}
