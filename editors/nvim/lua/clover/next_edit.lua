--- The next edit: where the change just made should be made again. Shown, jumped to, applied.

local server = require("clover.server")

local M = { ns = vim.api.nvim_create_namespace("clover_next_edit") }

local METHOD = "textDocument/copilotInlineEdit"
local QUIET_MS = 300

---@class clover.NextEdit
---@field edit table The server's edit.
---@field buf integer
---@field tick integer
---@field client_id integer

---@type clover.NextEdit?
local current
local timer ---@type uv.uv_timer_t?
local pending ---@type { client: vim.lsp.Client, id: integer }?
local attached = {} ---@type table<integer, boolean>

function M.clear()
  if current and vim.api.nvim_buf_is_valid(current.buf) then
    vim.api.nvim_buf_clear_namespace(current.buf, M.ns, 0, -1)
  end
  current = nil
end

--- Positions of an edit in bytes: start row, start column, end row, end column.
---@param found clover.NextEdit
---@return integer, integer, integer, integer
local function span(found)
  local client = vim.lsp.get_client_by_id(found.client_id)
  local encoding = client and client.offset_encoding or "utf-16"
  local function byte(position)
    local line = vim.api.nvim_buf_get_lines(found.buf, position.line, position.line + 1, false)[1] or ""
    return position.line, vim.str_byteindex(line, encoding, position.character, false)
  end
  local r1, c1 = byte(found.edit.range.start)
  local r2, c2 = byte(found.edit.range["end"])
  return r1, c1, r2, c2
end

local function draw()
  local found = current --[[@as clover.NextEdit]]
  local r1, c1, r2, c2 = span(found)
  local text = vim.split((found.edit.text:gsub("\r\n?", "\n")), "\n")
  local below = {}
  for i = 2, #text do below[#below + 1] = { { text[i], "CloverEditNew" } } end
  vim.api.nvim_buf_set_extmark(found.buf, M.ns, r1, c1, {
    end_row = r2, end_col = c2, hl_group = "CloverEditOld",
    virt_text = { { "  " .. text[1], "CloverEditNew" } },
    virt_lines = #below > 0 and below or nil,
    sign_text = ">>", sign_hl_group = "CloverEditNew",
  })
  local row = vim.api.nvim_win_get_cursor(0)[1] - 1
  if row < vim.fn.line("w0") - 1 or r1 < vim.fn.line("w0") - 1 or r1 > vim.fn.line("w$") - 1 then
    vim.api.nvim_buf_set_extmark(found.buf, M.ns, row, 0, {
      virt_text = { { ("  next edit in line %d"):format(r1 + 1), "CloverGhost" } }, virt_text_pos = "eol",
    })
  end
end

--- Asks the server for the next edit.
---@param done? fun(found: boolean)
function M.ask(done)
  local buf = vim.api.nvim_get_current_buf()
  local client = server.client(buf)
  if not client then return done and done(false) end
  if pending then pending.client:cancel_request(pending.id) end
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  params.textDocument = server.document(buf)
  params.context = { triggerKind = done and 1 or 2 }
  local tick = vim.api.nvim_buf_get_changedtick(buf)
  local sent, id
  sent, id = client:request(METHOD, params, function(err, result)
    if pending and pending.id == id then pending = nil end
    if buf ~= vim.api.nvim_get_current_buf() or tick ~= vim.api.nvim_buf_get_changedtick(buf) then return end
    M.clear()
    local edit = not err and result and result.edits and result.edits[1]
    if edit and vim.uri_to_bufnr(edit.textDocument.uri) == buf then
      current = { edit = edit, buf = buf, tick = tick, client_id = client.id }
      draw()
      client:notify("textDocument/didShowInlineEdit", { item = edit })
    end
    if done then done(current ~= nil) end
  end, buf)
  if sent and id then pending = { client = client, id = id } end
end

---@return boolean
function M.visible()
  return current ~= nil and current.buf == vim.api.nvim_get_current_buf()
    and current.tick == vim.api.nvim_buf_get_changedtick(current.buf)
end

--- Jumps to the edit; where the cursor is on its line already, applies it.
function M.go()
  if not M.visible() then return end
  local found = current --[[@as clover.NextEdit]]
  local r1, c1, r2, c2 = span(found)
  if vim.api.nvim_win_get_cursor(0)[1] - 1 ~= r1 then
    vim.cmd.normal({ "m'", bang = true }) -- a jump that CTRL-O takes back
    vim.api.nvim_win_set_cursor(0, { r1 + 1, c1 })
    return
  end
  M.clear()
  local lines = vim.split((found.edit.text:gsub("\r\n?", "\n")), "\n")
  vim.api.nvim_buf_set_text(found.buf, r1, c1, r2, c2, lines)
  vim.api.nvim_win_set_cursor(0, { r1 + #lines, #lines == 1 and c1 + #lines[1] or #lines[#lines] })
  local client = vim.lsp.get_client_by_id(found.client_id)
  if client and found.edit.command then client:exec_cmd(found.edit.command, { bufnr = found.buf }) end
end

--- Takes the edit away for good: the server does not propose it again.
---@return boolean rejected False where none is shown.
function M.reject()
  if not M.visible() then return false end
  local found = current --[[@as clover.NextEdit]]
  M.clear()
  local client = vim.lsp.get_client_by_id(found.client_id)
  if client and found.edit.command then
    client:exec_cmd({ title = "", command = "clover.rejectNextEdit", arguments = found.edit.command.arguments },
      { bufnr = found.buf })
  end
  return true
end

local function later()
  M.clear()
  timer = timer or assert(vim.uv.new_timer())
  timer:start(QUIET_MS, 0, vim.schedule_wrap(function()
    if attached[vim.api.nvim_get_current_buf()] then M.ask() end
  end))
end

---@param buf integer
function M.attach(buf)
  if attached[buf] then return end
  attached[buf] = true
  local group = vim.api.nvim_create_augroup("clover_next_edit_" .. buf, { clear = true })
  vim.api.nvim_create_autocmd({ "TextChanged", "InsertLeave" }, { group = group, buffer = buf, callback = later })
  vim.api.nvim_create_autocmd({ "InsertEnter", "BufLeave" }, { group = group, buffer = buf, callback = M.clear })
  vim.api.nvim_create_autocmd("BufUnload", { group = group, buffer = buf, callback = function() M.detach(buf) end })
end

---@param buf integer
function M.detach(buf)
  attached[buf] = nil
  pcall(vim.api.nvim_del_augroup_by_name, "clover_next_edit_" .. buf)
  if current and current.buf == buf then M.clear() end
end

return M
