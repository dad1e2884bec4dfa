--- From the protocol's items to what stands in a buffer: what remains to insert, what it replaces.

local M = {}

---@class clover.Suggestion
---@field item table The server's item.
---@field text string What accepting inserts at the cursor, line breaks as "\n".
---@field after integer Bytes right of the cursor that accepting replaces.
---@field taken integer UTF-16 units of the item that the user has accepted in parts.

---@param item table
---@return string
function M.insert_text(item)
  local text = type(item.insertText) == "table" and item.insertText.value or item.insertText
  return (text:gsub("\r\n?", "\n"))
end

---@param line string
---@param encoding string
---@param units integer
---@return integer byte Clamped to the line's length.
local function byte_of(line, encoding, units)
  return vim.str_byteindex(line, encoding, units, false)
end

--- What an item means at a place, or nil where it does not fit what stands there.
---@param item table
---@param line string The cursor's line.
---@param row integer 0-based.
---@param col integer Bytes before the cursor.
---@param encoding string
---@return clover.Suggestion?
function M.suggestion(item, line, row, col, encoding)
  local text, after = M.insert_text(item), 0
  if item.range then
    local first, last = item.range.start, item.range["end"]
    if first.line ~= row or last.line ~= row then return nil end
    local from, to = byte_of(line, encoding, first.character), byte_of(line, encoding, last.character)
    if from > col or to < col then return nil end
    local typed = line:sub(from + 1, col)
    if text:sub(1, #typed) ~= typed then return nil end
    text, after = text:sub(#typed + 1), to - col
  end
  if text == "" then return nil end
  return { item = item, text = text, after = after, taken = 0 }
end

--- The part to show: without what stands right of the cursor already and would be put back.
---@param suggestion clover.Suggestion
---@param line string
---@param col integer
---@return string[] lines
function M.shown(suggestion, line, col)
  local text = suggestion.text
  local replaced = line:sub(col + 1, col + suggestion.after)
  if replaced ~= "" and not text:find("\n") and vim.endswith(text, replaced) then
    text = text:sub(1, #text - #replaced)
  end
  return vim.split(text, "\n")
end

--- The same suggestion after the user typed its next characters, or nil if they differ.
---@param suggestion clover.Suggestion
---@param typed string
---@return clover.Suggestion?
function M.advance(suggestion, typed)
  if typed == "" then return suggestion end
  if suggestion.text:sub(1, #typed) ~= typed or #typed == #suggestion.text then return nil end
  local rest = vim.deepcopy(suggestion)
  rest.text = suggestion.text:sub(#typed + 1)
  return rest
end

--- Inserts `text` at the cursor, over `after` bytes to its right, and puts the cursor behind it.
---@param text string
---@param after integer
function M.insert(text, after)
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  local lines = vim.split(text, "\n")
  vim.api.nvim_buf_set_text(0, row - 1, col, row - 1, col + after, lines)
  local last = #lines == 1 and col + #text or #lines[#lines]
  vim.api.nvim_win_set_cursor(0, { row - 1 + #lines, last })
end

--- Is this buffer the one at hand, and in insert mode?
---@param buf integer
---@return boolean
function M.in_insert(buf)
  return vim.api.nvim_get_current_buf() == buf and vim.api.nvim_get_mode().mode:sub(1, 1) == "i"
end

return M
