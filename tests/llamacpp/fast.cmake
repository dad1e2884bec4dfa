# Included where the project ggml begins: its own flags, the rest of llama.cpp is built unoptimised.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
