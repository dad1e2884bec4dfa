--- Neovim's own inline completion (0.12 and later) behind the same functions as `clover.ghost`.

local pieces = require("clover.pieces")
local place = require("clover.place")
local server = require("clover.server")

local M = {}

---@return boolean
function M.available() return vim.lsp.inline_completion ~= nil end

--- `vim.lsp.inline_completion.get` accepts; `on_accept` gives us the item to take a part of.
---@param take? fun(text: string): string
---@return boolean
function M.accept(take)
  if not take then return vim.lsp.inline_completion.get() end
  return vim.lsp.inline_completion.get({
    on_accept = function(item)
      local buf = vim.api.nvim_get_current_buf()
      local row, col = unpack(vim.api.nvim_win_get_cursor(0))
      local client = vim.lsp.get_client_by_id(item.client_id) or server.client(buf)
      if not client then return end
      local raw = { insertText = item.insert_text }
      if item.range then raw.range = item.range:to_lsp(client.offset_encoding) end
      local line = vim.api.nvim_get_current_line()
      local found = place.suggestion(raw, line, row - 1, col, client.offset_encoding)
      if not found then return end
      local part = take(found.text)
      local lines = vim.split(part, "\n")
      vim.api.nvim_buf_set_text(buf, row - 1, col, row - 1, col, lines)
      vim.api.nvim_win_set_cursor(0, { row - 1 + #lines, #lines == 1 and col + #part or #lines[#lines] })
      server.notify(buf, "textDocument/didPartiallyAcceptCompletion",
        { item = raw, acceptedLength = pieces.utf16(part) })
    end,
  })
end

---@param step integer
function M.cycle(step) vim.lsp.inline_completion.select({ count = step }) end

--- Hides what is shown until the next change.
function M.dismiss()
  local buf = vim.api.nvim_get_current_buf()
  local shown = M.visible()
  vim.lsp.inline_completion.enable(false, { bufnr = buf })
  vim.lsp.inline_completion.enable(true, { bufnr = buf })
  return shown
end

function M.visible()
  local ns = vim.api.nvim_get_namespaces()["nvim.lsp.inline_completion"]
  return ns ~= nil and #vim.api.nvim_buf_get_extmarks(0, ns, 0, -1, { limit = 1 }) > 0
end

function M.ask() M.cycle(1) end

---@param buf integer
function M.attach(buf) vim.lsp.inline_completion.enable(true, { bufnr = buf }) end

---@param buf integer
function M.detach(buf) vim.lsp.inline_completion.enable(false, { bufnr = buf }) end

return M
