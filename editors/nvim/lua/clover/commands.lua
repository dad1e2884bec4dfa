--- `:Clover …`: one command with subcommands.

local M = {}

---@class clover.Command
---@field about string
---@field run fun(args: string[], input: vim.api.keyset.create_user_command.command_args)
---@field complete? string[] What may follow.

---@type table<string, clover.Command>
M.list = {
  fix = {
    about = "fix the diagnostic under the cursor; `fix tests` repairs what a failing test shows",
    complete = { "tests" },
    run = function(args)
      local actions = require("clover.actions")
      if #args == 0 then return actions.fix() end
      if #args == 1 and args[1] == "tests" then return actions.fix_tests() end
      vim.notify("clover: `:Clover fix` or `:Clover fix tests`", vim.log.levels.WARN)
    end,
  },
  edit = {
    about = "change the line or the selection as you say; asks for words where there are none",
    complete = require("clover.instruct").presets,
    run = function(args, input) require("clover.instruct").edit(table.concat(args, " "), input) end,
  },
  accept = {
    about = "apply the edit that is shown",
    run = function()
      if not require("clover.instruct").accept() then vim.notify("clover: no edit is shown") end
    end,
  },
  retry = {
    about = "ask for another answer instead of the edit that is shown",
    run = function()
      if not require("clover.instruct").retry() then vim.notify("clover: no edit is shown") end
    end,
  },
  anew = {
    about = "write the line or the selection anew, without words",
    run = function(_, input) require("clover.actions").edit(input) end,
  },
  message = { about = "write a commit message for what is staged", run = function() require("clover.instruct").message() end },
  next = {
    about = "jump to the next edit; there, apply it",
    run = function()
      local edits = require("clover.next_edit")
      if edits.visible() then return edits.go() end
      edits.ask(function(found) if found then edits.go() else vim.notify("clover: no next edit") end end)
    end,
  },
  reject = {
    about = "take the edit away that is shown; a next edit is not proposed again",
    run = function()
      if require("clover.instruct").leave() then return end
      if not require("clover.next_edit").reject() then vim.notify("clover: no next edit is shown") end
    end,
  },
  cancel = {
    about = "stop the fix or the edit that is running",
    run = function()
      if require("clover.instruct").leave() then return end
      if not require("clover.status").cancel() then vim.notify("clover: nothing is running") end
    end,
  },
  suggest = { about = "ask for a suggestion now (insert mode)", run = function() require("clover").suggest() end },
  pause = {
    about = "stop or resume suggestions in this buffer",
    run = function() vim.notify("clover: suggestions " .. (require("clover").pause() and "paused" or "on") .. " in this buffer") end,
  },
  status = {
    about = "what the server is doing",
    run = function()
      local now = require("clover.status").current
      vim.notify(require("clover").status() .. (now.message and now.message ~= "" and " – " .. now.message or ""))
    end,
  },
  model = {
    about = "choose the model on this machine: `:Clover model`, or `:Clover model NAME`",
    complete = { "nano", "coder-0.5b", "coder-1.5b", "smollm2" },
    run = function(args) require("clover.models").choose(args[1]) end,
  },
  restart = { about = "end the server and start it again", run = function() require("clover.server").restart() end },
  log = { about = "open the log of Neovim's LSP client", run = function() vim.cmd.tabedit(vim.lsp.log.get_filename()) end },
}

---@param input vim.api.keyset.create_user_command.command_args
function M.run(input)
  local name = input.fargs[1] or "status"
  local found = M.list[name]
  if not found then
    return vim.notify(("clover: no command %q; one of %s"):format(name, table.concat(M.names(), ", ")), vim.log.levels.WARN)
  end
  found.run(vim.list_slice(input.fargs, 2), input)
end

---@return string[]
function M.names()
  local names = vim.tbl_keys(M.list)
  table.sort(names)
  return names
end

---@param lead string
---@param line string
---@return string[]
function M.complete(lead, line)
  local words = vim.split(line:gsub("^.-Clover!?", ""), "%s+", { trimempty = true })
  local first = words[1]
  local from = (first and M.list[first] and (#words > 1 or lead == "")) and (M.list[first].complete or {}) or M.names()
  return vim.tbl_filter(function(word) return vim.startswith(word, lead) end, from)
end

return M
