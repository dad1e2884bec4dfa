--- Edits in words: the lines of a range changed as an instruction says, shown before they are made.
---
--- While the model writes, its new lines grow below the old ones; then the difference is shown, and
--- the user applies it, leaves it, asks for another answer, or says what is still missing.

local server = require("clover.server")

local M = {}

local space = vim.api.nvim_create_namespace("clover_instruct")

---@class clover.Instruct
---@field client vim.lsp.Client
---@field buf integer
---@field tick integer
---@field first integer 0-based.
---@field last integer The line behind the last one.
---@field words string
---@field preset? string
---@field turns { instruction: string, text: string }[] Carried out before, oldest first.
---@field attempt integer
---@field token string
---@field request? integer
---@field answer? table

---@type clover.Instruct?
local current

local count = 0

---@param text string
---@param level? integer
local function say(text, level) vim.notify("clover: " .. text, level or vim.log.levels.INFO) end

---@param now clover.Instruct
local function wipe(now)
  if vim.api.nvim_buf_is_valid(now.buf) then vim.api.nvim_buf_clear_namespace(now.buf, space, 0, -1) end
end

---@param now clover.Instruct
---@return boolean
local function unchanged(now)
  return vim.api.nvim_buf_is_valid(now.buf) and vim.api.nvim_buf_get_changedtick(now.buf) == now.tick
end

---@param lines string[]
local function virtual(lines)
  return vim.tbl_map(function(line) return { { line == "" and " " or line, "CloverEditNew" } } end, lines)
end

--- The new lines that there are so far, below the old ones.
---@param now clover.Instruct
---@param text string
local function show_growing(now, text)
  wipe(now)
  local lines = vim.split(text, "\n")
  vim.api.nvim_buf_set_extmark(now.buf, space, math.max(now.last - 1, 0), 0, { virt_lines = virtual(lines) })
end

--- What goes and what comes, hunk by hunk.
---@param now clover.Instruct
---@param text string
local function show_difference(now, text)
  wipe(now)
  local old = vim.api.nvim_buf_get_lines(now.buf, now.first, now.last, false)
  local new = text == "" and {} or vim.split(text, "\n")
  local hunks = vim.diff(table.concat(old, "\n") .. "\n", #new > 0 and table.concat(new, "\n") .. "\n" or "",
    { result_type = "indices" })
  for _, hunk in ipairs(hunks) do
    local a, na, b, nb = unpack(hunk)
    for row = now.first + a - 1, now.first + a - 2 + na do
      vim.api.nvim_buf_set_extmark(now.buf, space, row, 0, { line_hl_group = "CloverEditOld" })
    end
    if nb > 0 then
      local above = na == 0 and a == 0
      local row = na == 0 and now.first + math.max(a - 1, 0) or now.first + a - 2 + na
      local come = virtual(vim.list_slice(new, b, b + nb - 1))
      vim.api.nvim_buf_set_extmark(now.buf, space, row, 0, { virt_lines = come, virt_lines_above = above })
    end
  end
end

--- What the server says of an answer that is still coming.
---@param params { token: string, text: string }
function M.preview(params)
  if current and current.token == params.token and not current.answer and unchanged(current) then
    show_growing(current, params.text)
  end
end

--- Words of the model in a window that the next move of the cursor closes.
---@param text string
local function float(text)
  vim.lsp.util.open_floating_preview(vim.split(text, "\n"), "markdown", { border = "rounded", wrap = true, max_width = 80 })
end

---@param now clover.Instruct
---@param answer table
local function take(now, answer)
  for _, note in ipairs(answer.notes or {}) do say(note, vim.log.levels.WARN) end
  if answer.kind == "say" then
    current = nil
    wipe(now)
    return float(answer.explanation)
  end
  if answer.kind == "file" then
    current = nil
    wipe(now)
    vim.cmd.edit(vim.fn.fnameescape(vim.uri_to_fname(answer.uri)))
    vim.api.nvim_buf_set_lines(0, 0, -1, false, vim.split((answer.text:gsub("\n$", "")), "\n"))
    return say("a new file, not saved yet")
  end
  now.answer = answer
  show_difference(now, answer.text)
  local keys = require("clover.config").options.keys or {}
  say(("%s applies, %s leaves it, %s asks again, %s says more"):format(keys.next_edit or ":Clover accept",
    keys.reject_edit or ":Clover reject", keys.retry_edit or ":Clover retry", keys.refine_edit or ":Clover edit …"))
end

---@param now clover.Instruct
local function ask(now)
  M.leave()
  count = count + 1
  now.token, now.answer, current = "edit-" .. count, nil, now
  local argument = {
    uri = vim.uri_from_bufnr(now.buf), version = vim.lsp.util.buf_versions[now.buf],
    range = { start = { line = now.first, character = 0 }, ["end"] = { line = now.last, character = 0 } },
    instruction = now.words, preset = now.preset, followUps = now.turns, attempt = now.attempt, token = now.token,
  }
  if now.last >= vim.api.nvim_buf_line_count(now.buf) then
    local last = vim.api.nvim_buf_get_lines(now.buf, now.last - 1, now.last, false)[1] or ""
    argument.range["end"] = { line = now.last - 1, character = vim.str_utfindex(last, now.client.offset_encoding) }
  end
  local _, id = now.client:request("workspace/executeCommand", { command = "clover.editSelection", arguments = { argument } },
    function(err, answer)
      if current ~= now then return end
      now.request = nil
      if err or not answer or not answer.kind then -- without a kind the server has said why
        if err then say(err.message, vim.log.levels.ERROR) end
        return M.leave()
      end
      if not unchanged(now) then
        say("the text changed meanwhile: ask again", vim.log.levels.WARN)
        return M.leave()
      end
      take(now, answer)
    end, now.buf)
  now.request = id
end

--- Is an edit shown that can be applied?
---@return boolean
function M.visible()
  return current ~= nil and current.answer ~= nil and current.buf == vim.api.nvim_get_current_buf()
end

--- Takes away what is shown, and stops the model where it still writes; true if there was anything.
---@return boolean
function M.leave()
  local now = current
  if not now then return false end
  current = nil
  wipe(now)
  if now.request then now.client:cancel_request(now.request) end
  return true
end

--- Makes the edit that is shown.
---@return boolean
function M.accept()
  local now = current
  if not now or not now.answer then return false end
  if not unchanged(now) then
    say("the text changed meanwhile: ask again", vim.log.levels.WARN)
    return M.leave()
  end
  M.leave()
  vim.lsp.util.apply_text_edits(now.answer.edits, now.buf, now.client.offset_encoding)
  return true
end

--- Asks for another answer to the same words.
---@return boolean
function M.retry()
  local now = current
  if not now or not now.answer then return false end
  now.attempt = now.attempt + 1
  ask(now)
  return true
end

--- Says what is still missing in the edit that is shown.
---@param words string
local function refine(words)
  local now = current
  if not now or not now.answer then return end
  table.insert(now.turns, { instruction = now.words, text = now.answer.text })
  now.words, now.preset, now.attempt = words, nil, 0
  ask(now)
end

--- The same, with a question for the words.
function M.refine()
  vim.ui.input({ prompt = "And: " }, function(words)
    if words and vim.trim(words) ~= "" then refine(words) end
  end)
end

---@param input { line1: integer, line2: integer }
---@param words string
---@param preset? string
local function start(input, words, preset)
  local buf = vim.api.nvim_get_current_buf()
  local client = server.client(buf)
  if not client then return say("no server in this buffer; see :checkhealth clover", vim.log.levels.WARN) end
  ask({
    client = client, buf = buf, tick = vim.api.nvim_buf_get_changedtick(buf),
    first = input.line1 - 1, last = input.line2, words = words, preset = preset,
    turns = {}, attempt = 0, token = "",
  })
end

M.presets = { "docstring", "types", "tests", "explain", "simplify" }

--- Changes the lines of the range as the words say; asks for words where there are none. Where an
--- edit is shown already, the words say what is missing in it.
---@param words string
---@param input { range: integer, line1: integer, line2: integer }
function M.edit(words, input)
  if words ~= "" and M.visible() and input.range == 0 then return refine(words) end
  if vim.tbl_contains(M.presets, words) then return start(input, "", words) end
  if words ~= "" then return start(input, words) end
  vim.ui.input({ prompt = "Edit: " }, function(said)
    if said and vim.trim(said) ~= "" then M.edit(said, input) end
  end)
end

--- Writes a commit message for what is staged: into the message's buffer, else into a register.
function M.message()
  local buf = vim.api.nvim_get_current_buf()
  local client = server.client(buf) or vim.lsp.get_clients({ name = server.name })[1]
  if not client then return say("no server runs: open a source file first", vim.log.levels.WARN) end
  local where = vim.bo[buf].filetype == "gitcommit" and vim.fn.getcwd() or vim.api.nvim_buf_get_name(buf)
  local arguments = where ~= "" and { { uri = vim.uri_from_fname(where) } } or {}
  client:request("workspace/executeCommand", { command = "clover.commitMessage", arguments = arguments }, function(err, answer)
    if err then return say(err.message, vim.log.levels.ERROR) end
    if type(answer) ~= "table" or type(answer.message) ~= "string" then return end -- the server has said why
    if vim.bo[buf].filetype == "gitcommit" then
      return vim.api.nvim_buf_set_lines(buf, 0, 1, false, vim.split(answer.message, "\n"))
    end
    vim.fn.setreg('"', answer.message)
    say("in the unnamed register:\n" .. answer.message)
  end)
end

return M
