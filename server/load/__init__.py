"""`paceline load`: a load generator for any server with OpenAI's completions or chats.

    lengths     how long prompts and answers are        prompts     what is asked
    connection  one request on one connection           client      as many connections as it takes
    drive       when it is asked: closed and open loop  figures     samples -> numbers, pure
    table, page, svg   what is shown of them            command     the command line

Nothing here knows the server's other packages: it speaks to it as any client does.
"""
