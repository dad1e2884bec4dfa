--- Ghost text of our own, where Neovim has none (0.11) or the user prefers it.

local pieces = require("clover.pieces")
local place = require("clover.place")
local server = require("clover.server")

local M = { ns = vim.api.nvim_create_namespace("clover_ghost") }

local INVOKED, AUTOMATIC = 1, 2
local METHOD = "textDocument/inlineCompletion"

---@class clover.Ghost
---@field buf integer
---@field row integer
---@field col integer
---@field suggestions clover.Suggestion[]
---@field index integer
---@field line string The line as it was when this was drawn.

---@type clover.Ghost?
local ghost
---@type { client: vim.lsp.Client, id: integer }?
local pending
local enabled = {} ---@type table<integer, boolean>
---@type string? The line with the suggestion that the user did not want.
local dismissed

local function cursor()
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  return row - 1, col
end

--- Is Neovim's or another plugin's popup menu open? Its keys go first then.
---@return boolean
function M.popup_open()
  if vim.fn.pumvisible() == 1 then return true end
  local cmp = package.loaded["cmp"]
  if cmp and cmp.visible and cmp.visible() then return true end
  local blink = package.loaded["blink.cmp"]
  return blink ~= nil and blink.is_menu_visible ~= nil and blink.is_menu_visible()
end

function M.clear()
  if ghost and vim.api.nvim_buf_is_valid(ghost.buf) then
    vim.api.nvim_buf_clear_namespace(ghost.buf, M.ns, 0, -1)
  end
  ghost = nil
end

local function cancel()
  if pending then pending.client:cancel_request(pending.id) end
  pending = nil
end

local function draw()
  local found = ghost --[[@as clover.Ghost]]
  local lines = place.shown(found.suggestions[found.index], found.line, found.col)
  local below = {}
  for i = 2, #lines do below[#below + 1] = { { lines[i], "CloverGhost" } } end
  vim.api.nvim_buf_clear_namespace(found.buf, M.ns, 0, -1)
  vim.api.nvim_buf_set_extmark(found.buf, M.ns, found.row, found.col, {
    virt_text = { { lines[1], "CloverGhost" } },
    virt_text_pos = "inline",
    virt_lines = #below > 0 and below or nil,
    hl_mode = "combine",
  })
end

--- Shows suggestions at the cursor and tells the server which one.
---@param buf integer
---@param suggestions clover.Suggestion[]
---@param index integer
local function show(buf, suggestions, index)
  local row, col = cursor()
  ghost = { buf = buf, row = row, col = col, suggestions = suggestions, index = index,
    line = vim.api.nvim_get_current_line() }
  draw()
  server.notify(buf, "textDocument/didShowCompletion", { item = suggestions[index].item })
end

--- Takes the server's answer for the cursor's place.
---@param buf integer
---@param client vim.lsp.Client
---@param result? table
---@param kind integer
local function receive(buf, client, result, kind)
  local row, col = cursor()
  local line, found = vim.api.nvim_get_current_line(), {}
  for _, item in ipairs(result and (result.items or result) or {}) do
    found[#found + 1] = place.suggestion(item, line, row, col, client.offset_encoding)
  end
  if #found == 0 then return M.clear() end
  if kind == AUTOMATIC and line:sub(1, col) .. found[1].text == dismissed then return end
  local same = ghost and ghost.row == row and ghost.col == col and ghost.suggestions[ghost.index]
  if same and #found == 1 and same.text == found[1].text then return end
  show(buf, found, 1)
end

---@param kind integer
---@param done? fun()
local function request(kind, done)
  local buf = vim.api.nvim_get_current_buf()
  local client = server.client(buf)
  if not client or not client:supports_method(METHOD, buf) then return end
  cancel()
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  params.context = { triggerKind = kind }
  local tick, row, col = vim.api.nvim_buf_get_changedtick(buf), cursor()
  local sent, id
  sent, id = client:request(METHOD, params, function(err, result)
    if pending and pending.id == id then pending = nil end
    if err or not place.in_insert(buf) then return end
    local now_row, now_col = cursor()
    if tick ~= vim.api.nvim_buf_get_changedtick(buf) or row ~= now_row or col ~= now_col then return end
    receive(buf, client, result, kind)
    if done then done() end
  end, buf)
  if sent and id then pending = { client = client, id = id } end
end

--- After a change or a move of the cursor: keep what still agrees, ask for the rest.
local function changed()
  local buf = vim.api.nvim_get_current_buf()
  if not enabled[buf] or M.popup_open() then
    cancel()
    return M.clear()
  end
  local row, col = cursor()
  local line = vim.api.nvim_get_current_line()
  if ghost and ghost.buf == buf then
    if ghost.row == row and ghost.col == col and ghost.line == line then return end
    local before = ghost.line:sub(1, ghost.col)
    local typed = line:sub(ghost.col + 1, col)
    local rest = ghost.row == row and col > ghost.col and line:sub(1, ghost.col) == before
      and line:sub(col + 1) == ghost.line:sub(ghost.col + 1)
      and place.advance(ghost.suggestions[ghost.index], typed)
    if rest then
      ghost.suggestions, ghost.index = { rest }, 1
      ghost.row, ghost.col, ghost.line = row, col, line
      draw()
    else
      M.clear()
    end
  end
  if not vim.b[buf].clover_paused then request(AUTOMATIC) end
end

--- Is there something to accept at the cursor?
---@return boolean
function M.visible()
  if not ghost or ghost.buf ~= vim.api.nvim_get_current_buf() then return false end
  local row, col = cursor()
  return ghost.row == row and ghost.col == col and ghost.line == vim.api.nvim_get_current_line()
end

--- Accepts the whole suggestion, or what `take` cuts off its text.
---@param take? fun(text: string): string
---@return boolean
function M.accept(take)
  if not M.visible() then return false end
  local found = ghost --[[@as clover.Ghost]]
  local suggestion = found.suggestions[found.index]
  local part = take and take(suggestion.text) or suggestion.text
  if part == "" then return false end
  local whole = part == suggestion.text
  cancel()
  M.clear()
  vim.cmd.let("&undolevels = &undolevels") -- a step of its own for undo
  place.insert(part, whole and suggestion.after or 0)
  if whole then
    local client = server.client(found.buf)
    if client and suggestion.item.command then client:exec_cmd(suggestion.item.command, { bufnr = found.buf }) end
    return true
  end
  local rest = vim.deepcopy(suggestion)
  rest.text, rest.taken = suggestion.text:sub(#part + 1), suggestion.taken + pieces.utf16(part)
  server.notify(found.buf, "textDocument/didPartiallyAcceptCompletion",
    { item = rest.item, acceptedLength = rest.taken })
  local row, col = cursor()
  ghost = { buf = found.buf, row = row, col = col, suggestions = { rest }, index = 1,
    line = vim.api.nvim_get_current_line() }
  draw()
  return true
end

--- Shows another suggestion; the first time, asks the server for all it has.
---@param step integer
function M.cycle(step)
  local function turn()
    if not ghost then return end
    local count = #ghost.suggestions
    show(ghost.buf, ghost.suggestions, (ghost.index - 1 + step) % count + 1)
  end
  if ghost and #ghost.suggestions > 1 then return turn() end
  local before = ghost and ghost.suggestions[ghost.index].text
  request(INVOKED, function()
    if not ghost or not before then return end
    for i, one in ipairs(ghost.suggestions) do
      if one.text == before then
        ghost.index = i
        return turn()
      end
    end
  end)
end

--- Takes the suggestion away; the same one comes back only when asked for, or in another visit.
---@return boolean
function M.dismiss()
  local was = M.visible()
  if was and ghost then dismissed = ghost.line:sub(1, ghost.col) .. ghost.suggestions[ghost.index].text end
  cancel()
  M.clear()
  return was
end

--- Asks now, whatever the settings for automatic suggestions.
function M.ask() request(INVOKED) end

--- Switches ghost text on for a buffer.
---@param buf integer
function M.attach(buf)
  if enabled[buf] then return end
  enabled[buf] = true
  local group = vim.api.nvim_create_augroup("clover_ghost_" .. buf, { clear = true })
  local function on(events, callback)
    vim.api.nvim_create_autocmd(events, { group = group, buffer = buf, callback = callback })
  end
  on({ "TextChangedI", "CursorMovedI", "InsertEnter" }, changed)
  on({ "CompleteChanged" }, function() cancel() M.clear() end)
  on({ "CompleteDone" }, function() vim.schedule(function() if place.in_insert(buf) then changed() end end) end)
  on({ "InsertLeave", "BufLeave" }, function() cancel() M.clear() dismissed = nil end)
  on({ "BufUnload" }, function() M.detach(buf) end)
  server.when_ready(buf, group, function()
    if not ghost and not pending then changed() end
  end)
end

--- What the user asks for is shown in a paused buffer too.
---@param buf integer
---@param paused boolean
function M.pause(buf, paused)
  if paused and ghost and ghost.buf == buf then
    cancel()
    M.clear()
  end
end

---@param buf integer
function M.detach(buf)
  enabled[buf] = nil
  pcall(vim.api.nvim_del_augroup_by_name, "clover_ghost_" .. buf)
  if ghost and ghost.buf == buf then M.clear() end
end

return M
