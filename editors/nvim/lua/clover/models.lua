--- The model on this machine: which there are, getting one, using one.

local server = require("clover.server")

local M = {}

---@class clover.Model
---@field name string
---@field bytes integer
---@field licence string
---@field purpose string
---@field installed boolean
---@field inUse boolean

local function say(text, level) vim.notify("clover: " .. text, level or vim.log.levels.INFO) end

---@param client vim.lsp.Client
---@param command string
---@param argument? table
---@param done fun(result: any)
local function run(client, command, argument, done)
  local params = { command = command, arguments = argument and { argument } or {} }
  client:request("workspace/executeCommand", params, function(err, result)
    if err then return say(err.message, vim.log.levels.ERROR) end
    done(result)
  end)
end

---@param model clover.Model
local function described(model)
  local size = ("%d MB"):format(math.floor(model.bytes / 1e6 + 0.5))
  local state = model.inUse and "in use" or model.installed and "installed" or "not installed"
  return ("%s: %s, %s, %s, %s"):format(model.name, model.purpose, size, model.licence, state)
end

---@param client vim.lsp.Client
---@param model clover.Model
local function use(client, model)
  run(client, "clover.useModel", { name = model.name }, function(answer)
    if not answer.used then return say(answer.reason, vim.log.levels.WARN) end
    say(model.name .. " is used from now on")
  end)
end

---@param client vim.lsp.Client
---@param model clover.Model
local function get(client, model)
  say("getting " .. model.name .. "; `:Clover cancel` stops it")
  run(client, "clover.getModel", { name = model.name }, function(answer)
    if not answer.installed then return say(answer.reason, vim.log.levels.WARN) end
    use(client, model)
  end)
end

--- Nothing is downloaded before the user has seen how much it is, and said yes.
---@param client vim.lsp.Client
---@param model clover.Model
local function wanted(client, model)
  if model.installed then return use(client, model) end
  local yes = ("Download %s: %d MB, %s"):format(model.name, math.floor(model.bytes / 1e6 + 0.5), model.licence)
  vim.ui.select({ yes, "Not now" }, { prompt = "Clover" }, function(choice)
    if choice == yes then get(client, model) end
  end)
end

---@param name? string Asked for where it is not given.
function M.choose(name)
  local client = server.client(vim.api.nvim_get_current_buf())
  if not client then return say("no server in this buffer; see :checkhealth clover", vim.log.levels.WARN) end
  run(client, "clover.models", nil, function(models)
    if not name then
      return vim.ui.select(models, { prompt = "Clover: model", format_item = described }, function(model)
        if model then wanted(client, model) end
      end)
    end
    for _, model in ipairs(models) do
      if model.name == name then return wanted(client, model) end
    end
    say(("no model %q; there are: %s"):format(name, table.concat(vim.tbl_map(function(m) return m.name end, models), ", ")))
  end)
end

return M
