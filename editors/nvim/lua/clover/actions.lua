--- Fixes of diagnostics, and writing a selection anew: asked of our server only, applied if the
--- text is still what it was when the user asked.

local server = require("clover.server")

local M = {}

---@class clover.Place What an answer is about.
---@field client vim.lsp.Client
---@field buf integer
---@field tick integer

---@param text string
---@param level? integer
local function say(text, level) vim.notify("clover: " .. text, level or vim.log.levels.INFO) end

---@return clover.Place? place Nil where no server is; the user was told.
local function here()
  local buf = vim.api.nvim_get_current_buf()
  local client = server.client(buf)
  if not client then return say("no server in this buffer; see :checkhealth clover", vim.log.levels.WARN) end
  return { client = client, buf = buf, tick = vim.api.nvim_buf_get_changedtick(buf) }
end

---@param place clover.Place
local function unchanged(place)
  local same = vim.api.nvim_buf_is_valid(place.buf) and vim.api.nvim_buf_get_changedtick(place.buf) == place.tick
  if not same then say("the text changed meanwhile: ask again", vim.log.levels.WARN) end
  return same
end

---@param place clover.Place
---@param method string
---@param params table
---@param done fun(result: any)
local function request(place, method, params, done)
  place.client:request(method, params, function(err, result)
    if err then return say(err.message, vim.log.levels.ERROR) end
    done(result)
  end, place.buf)
end

--- A place in bytes as the protocol counts it for this client; the column is clamped to the line.
---@param place clover.Place
---@param row integer 0-based.
---@param col integer
local function position(place, row, col)
  local line = vim.api.nvim_buf_get_lines(place.buf, row, row + 1, false)[1] or ""
  local units = vim.str_utfindex(line, place.client.offset_encoding, math.min(col, #line), false)
  return { line = row, character = units }
end

--- Diagnostics may come from a linter or from a server that counts otherwise: only bytes are sure.
---@param place clover.Place
---@param found vim.Diagnostic
local function diagnostic(place, found)
  return {
    range = {
      start = position(place, found.lnum, found.col),
      ["end"] = position(place, found.end_lnum or found.lnum, found.end_col or found.col),
    },
    severity = found.severity, message = found.message, source = found.source, code = found.code,
  }
end

--- Runs a command of the server, which applies what it does itself.
---@param name string
---@param arguments table
---@param done? fun(result: any)
function M.execute(name, arguments, done)
  local place = here()
  if not place then return end
  request(place, "workspace/executeCommand", { command = name, arguments = arguments }, done or function() end)
end

---@param place clover.Place
---@param action table A `CodeAction`.
local function take(place, action)
  if not action.edit and action.command then
    return request(place, "workspace/executeCommand",
      { command = action.command.command, arguments = action.command.arguments }, function() end)
  end
  request(place, "codeAction/resolve", action, function(resolved)
    -- Without an edit the server has said why.
    if not resolved or not resolved.edit or not unchanged(place) then return end
    vim.lsp.util.apply_workspace_edit(resolved.edit, place.client.offset_encoding)
    say(resolved.title)
  end)
end

--- Fixes a diagnostic of the cursor's line; asks which way where there are several.
function M.fix()
  local place = here()
  if not place then return end
  local row = vim.api.nvim_win_get_cursor(0)[1] - 1
  local found = vim.tbl_map(function(one) return diagnostic(place, one) end, vim.diagnostic.get(place.buf, { lnum = row }))
  if #found == 0 then return say("no diagnostic in this line; `:Clover fix tests` repairs what the tests say") end
  local params = {
    textDocument = { uri = vim.uri_from_bufnr(place.buf) },
    range = { start = position(place, row, 0), ["end"] = position(place, row, math.huge) },
    context = { only = { "quickfix" }, diagnostics = found, triggerKind = 1 },
  }
  request(place, "textDocument/codeAction", params, function(actions)
    if not actions or #actions == 0 then return say("no fix is known for this diagnostic") end
    vim.ui.select(actions, {
      prompt = "Fix:", kind = "codeaction", format_item = function(action) return action.title end,
    }, function(chosen) if chosen and unchanged(place) then take(place, chosen) end end)
  end)
end

--- Has the server repair what makes the project's check fail.
function M.fix_tests()
  M.execute("clover.fixTests", { { uri = vim.uri_from_bufnr(0) } }, function(result)
    if type(result) == "table" and result.applied and #result.files > 1 then
      say(("%d files were changed; :wall saves them, `u` in each takes it back"):format(#result.files))
    end
  end)
end

--- Rows and byte columns of what a command's range means, the indentation left out.
---@param input { range: integer, line1: integer, line2: integer }
---@return integer, integer, integer, integer
local function selected(input)
  local first, last = vim.fn.getpos("'<"), vim.fn.getpos("'>")
  local r1, r2 = input.line1 - 1, input.line2 - 1
  local head, tail = vim.fn.getline(r1 + 1), vim.fn.getline(r2 + 1)
  if input.range == 2 and vim.fn.visualmode() == "v" and first[2] == r1 + 1 and last[2] == r2 + 1 then
    local col = math.min(last[3], #tail)
    return r1, first[3] - 1, r2, col > 0 and col + vim.str_utf_end(tail, col) or 0
  end
  return r1, #head:match("^%s*"), r2, #tail
end

--- Writes the selection (or the lines of the range) anew, as the user chooses.
---@param input { range: integer, line1: integer, line2: integer }
function M.edit(input)
  local place = here()
  if not place then return end
  local r1, c1, r2, c2 = selected(input)
  local range = { start = position(place, r1, c1), ["end"] = position(place, r2, c2) }
  local argument = { uri = vim.uri_from_bufnr(place.buf), version = vim.lsp.util.buf_versions[place.buf], range = range }
  M.execute("clover.listAlternatives", { argument }, function(result)
    local found = result and result.alternatives or {}
    if #found == 0 then return end -- the server has said why
    vim.ui.select(found, {
      prompt = "Write as:", kind = "clover_edit",
      format_item = function(one) return ("%s  (%d %%)"):format(one.text:gsub("\n", "\\n"), one.confidence * 100) end,
    }, function(chosen)
      if not chosen or not unchanged(place) then return end
      vim.lsp.util.apply_text_edits({ { range = range, newText = chosen.text } }, place.buf, place.client.offset_encoding)
    end)
  end)
end

return M
