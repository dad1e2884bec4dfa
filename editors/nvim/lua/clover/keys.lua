--- Keys that do something only while there is something to accept, and are the user's otherwise.

local M = {}

---@type table[] Mappings of ours with what they stand before, for `:checkhealth`.
M.set_here = {}

local acts = {} ---@type fun()[]

--- Runs what a mapping stands for; called by the keys that the mapping turns into.
---@param number integer
function M.act(number) acts[number]() end

--- What the key meant before: a function to call, or keys to send.
---@param before table As `maparg` gives it; empty where there was no mapping.
---@param lhs string
---@return string keys For an `expr` mapping.
local function former(before, lhs)
  if vim.tbl_isempty(before) then return vim.keycode(lhs) end
  if before.expr == 1 then
    local value = before.callback and before.callback() or vim.api.nvim_eval(before.rhs)
    if type(value) ~= "string" then return "" end
    return before.replace_keycodes == 1 and vim.keycode(value) or value
  end
  if before.callback then
    vim.schedule(before.callback)
    return ""
  end
  local keys = vim.keycode((before.rhs:gsub("<[Ss][Ii][Dd]>", ("<SNR>%d_"):format(before.sid or 0))))
  if before.noremap == 1 then return keys end
  vim.api.nvim_feedkeys(keys, "m", false)
  return ""
end

--- Maps a key in one buffer. `act` says whether it did something; else the key means what it did.
---@param buf integer
---@param mode string
---@param lhs string|false|nil
---@param desc string
---@param ready fun(): boolean
---@param act fun()
function M.map(buf, mode, lhs, desc, ready, act)
  if not lhs then return end
  local before = vim.api.nvim_buf_call(buf, function() return vim.fn.maparg(lhs, mode, false, true) end)
  if before.desc and vim.startswith(before.desc, "Clover:") then return end
  acts[#acts + 1] = act
  -- Text must not change while a mapping is evaluated, and keys typed after this one must come later.
  local keys = vim.keycode(("<Cmd>lua require('clover.keys').act(%d)<CR>"):format(#acts))
  vim.keymap.set(mode, lhs, function()
    return ready() and keys or former(before, lhs)
  end, { buffer = buf, expr = true, replace_keycodes = false, desc = "Clover: " .. desc })
  M.set_here[#M.set_here + 1] = { buf = buf, mode = mode, lhs = lhs, before = before }
end

return M
