--- `:checkhealth clover`

local M = {}

local function version(cmd)
  local done = vim.system({ cmd[1], "--version" }, { text = true, timeout = 10000 }):wait()
  return done.code == 0 and vim.trim(done.stdout) or nil
end

local function check_server()
  local health, server = vim.health, require("clover.server")
  local cmd, from = server.command()
  if not cmd then
    health.error("clover-code was not found", {
      "install it: `pip install 'clover-code[engine]'`, or `make setup` in a clone",
      "or name it: `require('clover').setup({ cmd = { '/path/to/clover-code', 'lsp' } })`",
    })
    return
  end
  local ok, found = pcall(version, cmd)
  if ok and found then
    health.ok(("%s (%s, from %s)"):format(found, table.concat(cmd, " "), from))
  else
    health.error(("`%s --version` failed"):format(cmd[1]), { "run `clover-code doctor` in a terminal" })
  end
end

local function check_clients()
  local health, server = vim.health, require("clover.server")
  local clients = vim.lsp.get_clients({ name = server.name })
  if #clients == 0 then
    health.info("no server is running: it starts with the first buffer of a known filetype")
  end
  for _, client in ipairs(clients) do
    health.ok(("running for %s, positions in %s"):format(client.root_dir or "single files", client.offset_encoding))
    if not client:supports_method("textDocument/inlineCompletion") then
      health.error("the server offers no inline completion", { "update clover-code" })
    end
  end
  local now = require("clover.status").current
  health.info(("status: %s%s"):format(now.kind, now.message and now.message ~= "" and ": " .. now.message or ""))
end

local function check_keys()
  local health, keys = vim.health, require("clover.keys")
  for _, map in ipairs(keys.set_here) do
    if vim.api.nvim_buf_is_valid(map.buf) and not vim.tbl_isempty(map.before) then
      health.info(("%s in buffer %d falls back to: %s"):format(map.lhs, map.buf,
        map.before.desc or map.before.rhs or "a function"))
    end
  end
end

function M.check()
  local health = vim.health
  health.start("clover: Neovim")
  if vim.fn.has("nvim-0.11") == 1 then
    local own = vim.lsp.inline_completion and "its own inline completion" or "the plugin's ghost text"
    health.ok(("Neovim %s with %s"):format(tostring(vim.version()), own))
  else
    health.error("Neovim 0.11 or later is needed")
    return
  end
  health.start("clover: the server")
  check_server()
  check_clients()
  health.start("clover: keys")
  check_keys()
  for _, other in ipairs({ "copilot", "supermaven-nvim", "codeium", "minuet" }) do
    if package.loaded[other] then
      health.warn(other .. " is loaded too: two plugins will show suggestions", { "switch one of them off" })
    end
  end
end

return M
