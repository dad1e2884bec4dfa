--- Finds and starts the language server, and talks to its client object.

local config = require("clover.config")
local place = require("clover.place")
local status = require("clover.status")

local M = {}

M.name = "clover"

--- The root of the repository that this plugin was cloned with, where it is part of one.
local function checkout()
  local here = vim.fs.dirname(debug.getinfo(1, "S").source:sub(2))
  return vim.fs.normalize(here .. "/../../../..")
end

--- The server's command line, and where it was found.
---
--- Programs of the opened project are never looked at: opening a folder must not run its code.
---@return string[]? cmd
---@return string from
function M.command()
  if config.options.cmd then return config.options.cmd, "the option cmd" end
  local found = vim.fn.exepath("clover-code")
  if found ~= "" then return { found, "lsp" }, "PATH" end
  local own = checkout() .. "/.venv/bin/clover-code"
  if vim.fn.executable(own) == 1 then return { own, "lsp" }, "the plugin's own clone" end
  return nil, "nowhere"
end

--- The client that serves a buffer.
---@param buf? integer
---@return vim.lsp.Client?
function M.client(buf)
  return vim.lsp.get_clients({ name = M.name, bufnr = buf or 0 })[1]
end

--- Sends a notification where a client is there.
---@param buf integer
---@param method string
---@param params table
function M.notify(buf, method, params)
  local client = M.client(buf)
  if client then client:notify(method, params) end
end

--- Calls back in insert mode when the server's state changed: what was typed while the model was
--- still loading gets its suggestion once it is there.
---@param buf integer
---@param group integer
---@param call fun()
function M.when_ready(buf, group, call)
  vim.api.nvim_create_autocmd("User", {
    group = group,
    pattern = "CloverStatus",
    callback = function()
      if place.in_insert(buf) then call() end
    end,
  })
end

--- A document's identifier with the version that the server has.
---@param buf integer
function M.document(buf)
  return { uri = vim.uri_from_bufnr(buf), version = vim.lsp.util.buf_versions[buf] }
end

local function on_exit(code, signal)
  vim.schedule(function()
    status.lost(code, signal)
    local asked = (code == 0 and signal == 0) or signal == 15 or code == 143
    if not asked and vim.v.exiting == vim.NIL then M.restart_later() end
  end)
end

local pauses = { 1000, 3000, 10000, 30000 }
local crashes, last_crash = 0, 0

--- Starts the server again after a crash, later each time; a quiet five minutes forgive.
function M.restart_later()
  local now = vim.uv.now()
  if now - last_crash > 300000 then crashes = 0 end
  last_crash, crashes = now, crashes + 1
  local pause = pauses[crashes]
  if not pause then
    vim.notify("clover: the server keeps ending; see :checkhealth clover and :Clover log, then :Clover restart", vim.log.levels.ERROR)
    return
  end
  vim.defer_fn(function() vim.lsp.enable(M.name) end, pause)
end

--- Ends the server and starts it for all buffers that it knows. One that does not end is killed.
function M.restart()
  crashes = 0
  for _, client in ipairs(vim.lsp.get_clients({ name = M.name })) do client:stop() end
  local tries = 0
  local function start_when_gone()
    local left = vim.lsp.get_clients({ name = M.name })
    tries = tries + 1
    if #left == 0 then return vim.lsp.enable(M.name) end
    if tries == 50 then for _, client in ipairs(left) do client:stop(true) end end
    vim.defer_fn(start_when_gone, 100)
  end
  start_when_gone()
end

--- Suggestions are ghost text, never items of the popup menu as well: a client that announces inline
--- completion is not offered the other one. Neovim before 0.12 does not announce it by itself.
local function capabilities()
  return vim.tbl_deep_extend("force", vim.lsp.protocol.make_client_capabilities(), {
    textDocument = { inlineCompletion = { dynamicRegistration = false } },
  })
end

--- Registers the server with Neovim; it starts with the first buffer of a matching filetype.
---@return boolean started False where no command was found; the user was told how to go on.
function M.enable()
  local cmd = M.command()
  if not cmd then
    status.set({ kind = "Error", message = "clover-code was not found" })
    vim.notify_once("clover: `clover-code` was not found on PATH; see :checkhealth clover", vim.log.levels.WARN)
    return false
  end
  local options = config.options
  local settings = vim.tbl_isempty(options.settings) and vim.empty_dict() or options.settings
  vim.lsp.config(M.name, {
    cmd = cmd,
    filetypes = options.filetypes or config.filetypes,
    root_markers = options.root_markers,
    init_options = settings,
    settings = { clover = settings },
    capabilities = capabilities(),
    handlers = {
      didChangeStatus = function(_, params) status.set(params) end,
      ["clover/editPreview"] = function(_, params) require("clover.instruct").preview(params) end,
    },
    on_exit = on_exit,
  })
  vim.lsp.enable(M.name)
  if vim.v.vim_did_enter == 0 then
    -- Until then Neovim does not look at files that are open already, as with `nvim -S`.
    vim.api.nvim_create_autocmd("VimEnter", { once = true, callback = function() vim.lsp.enable(M.name) end })
  end
  return true
end

return M
