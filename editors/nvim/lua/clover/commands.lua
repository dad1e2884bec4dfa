--- `:Clover …`: one command with subcommands.

local M = {}

local function client_or_warn()
  local client = require("clover.server").client(0)
  if not client then vim.notify("clover: no server in this buffer; see :checkhealth clover", vim.log.levels.WARN) end
  return client
end

--- Runs a command of the server; what it says is shown.
---@param name string
---@param arguments table
---@param done? fun(result: any)
local function execute(name, arguments, done)
  local client = client_or_warn()
  if not client then return end
  client:request("workspace/executeCommand", { command = name, arguments = arguments }, function(err, result)
    if err then return vim.notify("clover: " .. err.message, vim.log.levels.ERROR) end
    if done then done(result) end
  end, 0)
end

local function code_action(kind)
  local client = client_or_warn()
  if not client then return end
  vim.lsp.buf.code_action({
    context = { only = { kind }, diagnostics = vim.lsp.diagnostic.from(vim.diagnostic.get(0, { lnum = vim.fn.line(".") - 1 })) },
    filter = function(_, id) return id == nil or id == client.id end,
  })
end

---@type table<string, { about: string, run: fun(args: string[]), complete?: string[] }>
M.list = {
  fix = {
    about = "fix the diagnostic under the cursor; `fix tests` repairs what a failing test shows",
    complete = { "tests" },
    run = function(args)
      if args[1] == "tests" then
        execute("clover.fixTests", { { uri = vim.uri_from_bufnr(0), check = args[2] and table.concat(args, " ", 2) or nil } })
      elseif args[1] == nil then
        code_action("quickfix")
      else
        vim.notify("clover: `:Clover fix` or `:Clover fix tests [CHECK]`", vim.log.levels.WARN)
      end
    end,
  },
  edit = { about = "rewrite the line or selection", run = function() code_action("refactor.rewrite") end },
  next = {
    about = "jump to the next edit; there, apply it",
    run = function()
      local edits = require("clover.next_edit")
      if edits.visible() then return edits.go() end
      edits.ask(function(found) if found then edits.go() else vim.notify("clover: no next edit") end end)
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
  restart = { about = "end the server and start it again", run = function() require("clover.server").restart() end },
  log = { about = "open the log of Neovim's LSP client", run = function() vim.cmd.tabedit(vim.lsp.log.get_filename()) end },
}

function M.run(input)
  local name = input.fargs[1] or "status"
  local found = M.list[name]
  if not found then
    return vim.notify(("clover: no command %q; one of %s"):format(name, table.concat(M.names(), ", ")), vim.log.levels.WARN)
  end
  found.run(vim.list_slice(input.fargs, 2))
end

function M.names()
  local names = vim.tbl_keys(M.list)
  table.sort(names)
  return names
end

---@param lead string
---@param line string
function M.complete(lead, line)
  local words = vim.split(line, "%s+", { trimempty = true })
  local first = words[2]
  local from = (first and M.list[first] and (#words > 2 or lead == "")) and (M.list[first].complete or {}) or M.names()
  return vim.tbl_filter(function(word) return vim.startswith(word, lead) end, from)
end

return M
