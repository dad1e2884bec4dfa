--- Options of the plugin, their defaults and their checks.

local M = {}

---@class clover.Keys
---@field accept string|false Accept the whole suggestion; falls back to the key's former meaning.
---@field accept_word string|false
---@field accept_line string|false
---@field next string|false Show another suggestion; asks for more the first time.
---@field prev string|false
---@field dismiss string|false
---@field reject_edit string|false Take the edit away that is shown.
---@field next_edit string|false Apply the edit that is shown; jump to a next edit first.
---@field retry_edit string|false Ask for another answer to an instruction.
---@field refine_edit string|false Say what is missing in the edit that is shown.

---@class clover.Options
---@field cmd? string[] Command line of the server; nil looks for `clover-code` (see `:help clover-install`).
---@field filetypes? string[] Only these filetypes; nil takes all that the server knows.
---@field root_markers? (string|string[])[]
---@field settings? table Settings of the server, as in docs/settings.md.
---@field ghost? "auto"|"native"|"own"|"off" "auto" takes Neovim's own where it has one (0.12).
---@field next_edit? boolean Ask for the next edit after changes.
---@field keys? clover.Keys|false

---@type clover.Options
M.defaults = {
  cmd = nil,
  filetypes = nil,
  root_markers = { { ".git", ".jj", ".hg" }, "pyproject.toml", "package.json", "go.mod", "Cargo.toml" },
  settings = {},
  ghost = "auto",
  next_edit = true,
  keys = {
    accept = "<Tab>",
    accept_word = "<M-Right>",
    accept_line = "<M-Down>",
    next = "<M-]>",
    prev = "<M-[>",
    dismiss = "<C-]>",
    next_edit = "<M-e>",
    reject_edit = "<M-E>",
    retry_edit = "<M-r>",
    refine_edit = "<M-i>",
  },
}

--- Filetypes that the server reads; Neovim's names, which it maps to its own.
M.filetypes = {
  "python", "javascript", "javascriptreact", "typescript", "typescriptreact", "go", "rust", "c",
  "cpp", "java", "lua", "sh", "toml", "yaml", "json", "html", "css", "ruby", "php", "cs", "kotlin",
  "swift", "scala", "sql", "vim",
}

---@type clover.Options
M.options = vim.deepcopy(M.defaults)

local ghosts = { auto = true, native = true, own = true, off = true }

--- What is wrong with one option, or nil.
---@param name string
---@param value any
---@return string?
local function problem(name, value)
  local kinds = {
    cmd = "table", filetypes = "table", root_markers = "table", settings = "table",
    ghost = "string", next_edit = "boolean",
  }
  if name == "keys" then
    if value == false then return nil end
    if type(value) ~= "table" then return "keys: a table or false" end
    for key, lhs in pairs(value) do
      if M.defaults.keys[key] == nil then return ("keys.%s: no such action"):format(key) end
      if lhs ~= false and type(lhs) ~= "string" then
        return ("keys.%s: a key such as \"<Tab>\", or false"):format(key)
      end
    end
    return nil
  end
  if kinds[name] == nil then return ("%s: no such option"):format(name) end
  if type(value) ~= kinds[name] then return ("%s: a %s"):format(name, kinds[name]) end
  if name == "ghost" and not ghosts[value] then
    return 'ghost: one of "auto", "native", "own", "off"'
  end
end

--- Takes the user's options; a bad one is reported and keeps its default.
---@param given? clover.Options
---@return clover.Options
function M.set(given)
  local good = {}
  for name, value in pairs(given or {}) do
    local wrong = problem(name, value)
    if wrong then
      vim.notify(("clover: %s; see :help clover-options"):format(wrong), vim.log.levels.WARN)
    else
      good[name] = value
    end
  end
  M.options = vim.tbl_deep_extend("force", vim.deepcopy(M.defaults), good)
  if good.keys == false then M.options.keys = {} end
  return M.options
end

return M
