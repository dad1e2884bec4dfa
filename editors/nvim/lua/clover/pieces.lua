--- How much of a suggestion a partial accept takes. Pure functions on text.

local M = {}

--- The next word with the blanks before it; signs are words of their own. A line break ends it.
---@param text string
---@return string
function M.word(text)
  local break_ = text:match("^%s*\n%s*")
  if break_ then return break_ end
  local blanks, rest = text:match("^([ \t]*)(.*)$")
  -- Bytes above 127 are parts of letters in UTF-8: a word holds them whole.
  local word = rest:match("^[%w_\128-\255]+") or rest:match("^[^%w_%s\128-\255]") or ""
  return blanks .. word
end

--- Up to the end of the first line that is not empty.
---@param text string
---@return string
function M.line(text)
  local lead, line = text:match("^(\n*)([^\n]*)")
  return lead .. line
end

--- Length in UTF-16 units, as the protocol counts.
---@param text string
---@return integer
function M.utf16(text)
  return vim.str_utfindex(text, "utf-16")
end

return M
