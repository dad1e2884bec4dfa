--- Neovim's own inline completion (0.12 and later) behind the same functions as `clover.ghost`.

local pieces = require("clover.pieces")
local place = require("clover.place")
local server = require("clover.server")

local M = {}

local INVOKED = 1
local METHOD = "textDocument/inlineCompletion"

---@type integer? Which way to turn when the answer to the next request comes; it asks for several.
local turning
---@type string? The line with the suggestion that came last, and with the one that was not wanted.
local last, dismissed

---@return boolean
function M.available() return vim.lsp.inline_completion ~= nil end

--- The line up to a suggestion's place, and the suggestion.
---@param client vim.lsp.Client
---@param buf integer
---@param item table
---@return string
local function whole(client, buf, item)
  local at = item.range.start
  local line = vim.api.nvim_buf_get_lines(buf, at.line, at.line + 1, false)[1] or ""
  local byte = vim.str_byteindex(line, client.offset_encoding, at.character, false)
  return line:sub(1, byte) .. place.insert_text(item)
end

--- Neovim asks for one suggestion, and tells nobody what it shows. Its requests go through here.
---@param client vim.lsp.Client
local function follow(client)
  if rawget(client, "clover_followed") then return end
  rawset(client, "clover_followed", true)
  local request = client.request
  client.request = function(self, method, params, handler, buf)
    if method ~= METHOD or not handler then return request(self, method, params, handler, buf) end
    local step = turning
    turning = nil
    if step then params.context.triggerKind = INVOKED end
    return request(self, method, params, function(err, result, ctx, config)
      local items = not err and result and (result.items or result) or {}
      local first = items[1] and whole(client, buf, items[1])
      if first and first == dismissed and not step then return end
      handler(err, result, ctx, config)
      if not first then return end
      client:notify("textDocument/didShowCompletion", { item = items[1] })
      local turns = step and step ~= 0 and #items > 1 and first == last
      last = first
      if turns then vim.lsp.inline_completion.select({ count = step }) end
    end, buf)
  end
end

--- Has Neovim ask again; it knows no way to be asked except that the cursor moved.
---@param buf integer
local function ask_again(buf) vim.api.nvim_exec_autocmds("CursorMovedI", { buffer = buf, modeline = false }) end

--- Takes a part of Neovim's item, as `on_accept` gives it.
---@param item table
---@param take fun(text: string): string
---@return table? item What Neovim is to insert; nil where this has inserted it.
local function take_part(item, take)
  local buf = vim.api.nvim_get_current_buf()
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  local client = vim.lsp.get_client_by_id(item.client_id)
  if not client then return end
  local raw = { insertText = item.insert_text, command = item.command }
  if item.range then raw.range = item.range:to_lsp(client.offset_encoding) end
  local line = vim.api.nvim_get_current_line()
  local found = place.suggestion(raw, line, row - 1, col, client.offset_encoding)
  if not found then return end
  local part = take(found.text)
  if part == found.text then return item end
  place.insert(part, 0)
  server.notify(buf, "textDocument/didPartiallyAcceptCompletion",
    { item = raw, acceptedLength = pieces.utf16(part) })
end

--- Accepts what is shown, or what `take` cuts off its text.
---@param take? fun(text: string): string
---@return boolean
function M.accept(take)
  if not M.visible() then return false end
  vim.cmd.let("&undolevels = &undolevels") -- a step of its own for undo
  local done = false
  local taken = vim.lsp.inline_completion.get({
    on_accept = function(item)
      done = true
      if take then return take_part(item, take) end
      return item
    end,
  })
  -- Neovim accepts later; keys that were typed after this one must find it done.
  if taken then vim.wait(200, function() return done end, 1) end
  return taken
end

local function extmarks()
  local ns = vim.api.nvim_get_namespaces()["nvim.lsp.inline_completion"]
  return ns and vim.api.nvim_buf_get_extmarks(0, ns, 0, -1, { limit = 1, details = true }) or {}
end

--- Shows another suggestion; where there is only one yet, asks the server for all it has.
---@param step integer
function M.cycle(step)
  -- Neovim numbers what it shows, "(2/3)", once there are several.
  local details = (extmarks()[1] or {})[4] or {}
  local line = (details.virt_lines and details.virt_lines[#details.virt_lines]) or details.virt_text or {}
  if #line > 1 then return vim.lsp.inline_completion.select({ count = step }) end
  turning = step
  ask_again(vim.api.nvim_get_current_buf())
end

--- Hides what is shown; the same one comes back only when asked for, or in another visit.
---@return boolean
function M.dismiss()
  local shown = M.visible()
  if shown then dismissed = last end
  -- Taking it without inserting anything is the only way to have it forgotten.
  vim.lsp.inline_completion.get({ on_accept = function() end })
  return shown
end

---@return boolean
function M.visible() return #extmarks() > 0 end

--- Asks now.
function M.ask()
  turning = 0
  ask_again(vim.api.nvim_get_current_buf())
end

---@param buf integer
function M.attach(buf)
  local client = server.client(buf)
  if client then follow(client) end
  if not vim.b[buf].clover_paused then vim.lsp.inline_completion.enable(true, { bufnr = buf }) end
  local group = vim.api.nvim_create_augroup("clover_native_" .. buf, { clear = true })
  vim.api.nvim_create_autocmd("InsertLeave", { group = group, buffer = buf, callback = function() dismissed = nil end })
  server.when_ready(buf, group, function()
    if not M.visible() and not vim.b[buf].clover_paused then ask_again(buf) end
  end)
end

---@param buf integer
---@param paused boolean
function M.pause(buf, paused) vim.lsp.inline_completion.enable(not paused, { bufnr = buf }) end

return M
