--- What the server says about itself, for statuslines.

local M = {}

---@class clover.Status
---@field kind "Normal"|"Warning"|"Error"|"Inactive"
---@field busy? boolean
---@field message? string

---@class clover.Progress A long task of the server, such as a fix.
---@field client_id integer
---@field token integer|string
---@field title string
---@field percentage? integer

---@type clover.Status
M.current = { kind = "Inactive", message = "not started" }

---@type clover.Progress?
M.running = nil

local words = { Normal = "ready", Warning = "limited", Error = "failed", Inactive = "off" }

local function tell()
  vim.api.nvim_exec_autocmds("User", { pattern = "CloverStatus", modeline = false })
  vim.cmd.redrawstatus()
end

---@param new clover.Status
function M.set(new)
  M.current = { kind = new.kind or "Normal", busy = new.busy or false, message = new.message }
  tell()
end

--- The server process ended.
---@param code integer
---@param signal integer
function M.lost(code, signal)
  M.running = nil
  if code == 0 and signal == 0 then
    M.set({ kind = "Inactive", message = "stopped" })
  else
    M.set({ kind = "Error", message = ("the server ended (code %d, signal %d)"):format(code, signal) })
  end
end

--- Follows the server's work-done progress.
---@param client_id integer
---@param params { token: integer|string, value: table }
function M.progress(client_id, params)
  local value = params.value
  if value.kind == "begin" then
    M.running = { client_id = client_id, token = params.token, title = value.title, percentage = value.percentage }
  elseif M.running and M.running.token == params.token then
    if value.kind == "end" then M.running = nil else M.running.percentage = value.percentage or M.running.percentage end
  end
  tell()
end

--- Asks the server to stop what it is doing.
---@return boolean asked False where nothing is running.
function M.cancel()
  local client = M.running and vim.lsp.get_client_by_id(M.running.client_id)
  if not client then return false end
  client:notify("window/workDoneProgress/cancel", { token = M.running.token })
  return true
end

--- A short text: "clover: ready", "clover: Fix with tests 40%".
---@return string
function M.text()
  if M.running then
    local part = M.running.percentage and (" %d%%"):format(M.running.percentage) or ""
    return "clover: " .. M.running.title .. part
  end
  local word = M.current.busy and "working" or words[M.current.kind] or "ready"
  return "clover: " .. word
end

return M
