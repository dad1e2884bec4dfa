--- clover-code in Neovim. `require("clover").setup({})` is all that is needed; see `:help clover`.

local config = require("clover.config")
local instruct = require("clover.instruct")
local keys = require("clover.keys")
local next_edit = require("clover.next_edit")
local pieces = require("clover.pieces")
local server = require("clover.server")
local status = require("clover.status")

local M = {}

---@return table? backend The module that shows suggestions, or nil when they are off.
function M.ghost()
  local wanted = config.options.ghost
  if wanted == "off" then return nil end
  local native = require("clover.native")
  if wanted ~= "own" and native.available() then return native end
  return require("clover.ghost")
end

local function highlights()
  local links = { CloverGhost = "Comment", CloverEditOld = "DiffDelete", CloverEditNew = "DiffAdd" }
  for name, target in pairs(links) do vim.api.nvim_set_hl(0, name, { link = target, default = true }) end
end

local function popup_open() return require("clover.ghost").popup_open() end

---@param buf integer
local function map_keys(buf)
  local wanted, ghost = config.options.keys or {}, M.ghost()
  if ghost then
    local function ready() return not popup_open() and ghost.visible() end
    local function always() return true end
    keys.map(buf, "i", wanted.accept, "accept", ready, function() ghost.accept() end)
    keys.map(buf, "i", wanted.accept_word, "accept word", ready, function() ghost.accept(pieces.word) end)
    keys.map(buf, "i", wanted.accept_line, "accept line", ready, function() ghost.accept(pieces.line) end)
    keys.map(buf, "i", wanted.dismiss, "dismiss", ready, ghost.dismiss)
    keys.map(buf, "i", wanted.next, "next suggestion", always, function() ghost.cycle(1) end)
    keys.map(buf, "i", wanted.prev, "previous suggestion", always, function() ghost.cycle(-1) end)
  end
  local function shown() return instruct.visible() or next_edit.visible() end
  keys.map(buf, "n", wanted.reject_edit, "leave the edit that is shown", shown, function()
    if not instruct.leave() then next_edit.reject() end
  end)
  keys.map(buf, "n", wanted.next_edit, "go to or apply the edit that is shown", shown, function()
    if not instruct.accept() then next_edit.go() end
  end)
  keys.map(buf, "n", wanted.retry_edit, "another answer", instruct.visible, instruct.retry)
  keys.map(buf, "n", wanted.refine_edit, "say what is missing", instruct.visible, instruct.refine)
end

---@param buf integer
function M.attach(buf)
  local ghost = M.ghost()
  if ghost then ghost.attach(buf) end
  if config.options.next_edit then next_edit.attach(buf) end
  map_keys(buf)
  server.notify(buf, "textDocument/didFocus", { textDocument = { uri = vim.uri_from_bufnr(buf) } })
end

---@param options? clover.Options
function M.setup(options)
  config.set(options)
  highlights()
  local group = vim.api.nvim_create_augroup("clover", { clear = true })
  local function on(event, callback)
    vim.api.nvim_create_autocmd(event, { group = group, callback = callback })
  end
  on("ColorScheme", highlights)
  on("LspAttach", function(event)
    local client = vim.lsp.get_client_by_id(event.data.client_id)
    if client and client.name == server.name then M.attach(event.buf) end
  end)
  on("LspProgress", function(event)
    local client = vim.lsp.get_client_by_id(event.data.client_id)
    if client and client.name == server.name then status.progress(client.id, event.data.params) end
  end)
  on("BufEnter", function(event)
    if server.client(event.buf) then
      server.notify(event.buf, "textDocument/didFocus", { textDocument = { uri = vim.uri_from_bufnr(event.buf) } })
    end
  end)
  server.enable()
end

--- "clover: ready", "clover: working", "clover: off", or the fix that runs; for statuslines.
---@return string
function M.status() return status.text() end

---@param take? fun(text: string): string
---@return boolean
local function accept(take)
  local ghost = M.ghost()
  return ghost ~= nil and ghost.accept(take)
end

--- Accepts the suggestion at the cursor; false where there is none.
---@return boolean
function M.accept() return accept() end

---@return boolean
function M.accept_word() return accept(pieces.word) end

---@return boolean
function M.accept_line() return accept(pieces.line) end

---@return boolean
function M.dismiss()
  local ghost = M.ghost()
  return ghost ~= nil and ghost.dismiss()
end

--- Asks for a suggestion now.
function M.suggest()
  local ghost = M.ghost()
  if ghost then ghost.ask() end
end

--- Stops automatic suggestions in a buffer, or lets them come again.
---@param buf? integer
---@return boolean paused
function M.pause(buf)
  buf = buf or vim.api.nvim_get_current_buf()
  local ghost, paused = M.ghost(), not vim.b[buf].clover_paused
  vim.b[buf].clover_paused = paused
  if ghost then ghost.pause(buf, paused) end
  return paused
end

return M
