"""Clover inside SGLang: a plugin of its own extension points, no fork and no edited file.

SGLang finds `plugin.register` through the entry-point group `sglang.srt.plugins` and calls it in
every process it starts. `launch` and `supervisor` start such a server and need neither torch nor
SGLang; `options` and `pinned` neither; `rows`, `gdn` and `request` do without SGLang.

| module | job |
|-|-|
| `launch`, `supervisor` | the command that starts SGLang, and what keeps the server running |
| `plugin` | what is registered and which functions are hooked |
| `pinned` | the version this was written for, and what moved in another |
| `hf_config` | a Clover `config.json` as SGLang's hybrid GDN configuration |
| `model`, `layers` | the model class: SGLang's Qwen3.5 layers plus block rows |
| `rows`, `gdn` | which rows a pass has; a GDN layer's equations for them |
| `passes` | one extra forward pass over part of a scheduled batch |
| `options`, `request` | what a request may ask for; where its generation stands |
| `algorithm` | denoising, self-speculation, plain decoding: the dLLM algorithm `Clover` |
| `hooks` | the scheduler's and the cache's bookkeeping for it |
| `launch`, `supervisor` | `clover-code serve`: the command line, and keeping the server alive |
"""
