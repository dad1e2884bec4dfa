--- What the server says about itself, for statuslines.

local M = {}

---@class clover.Status
---@field kind "Normal"|"Warning"|"Error"|"Inactive"
---@field busy? boolean
---@field message? string

---@type clover.Status
M.current = { kind = "Inactive", message = "not started" }

local words = { Normal = "ready", Warning = "limited", Error = "failed", Inactive = "off" }

---@param new clover.Status
function M.set(new)
  M.current = { kind = new.kind or "Normal", busy = new.busy or false, message = new.message }
  vim.api.nvim_exec_autocmds("User", { pattern = "CloverStatus", modeline = false })
  vim.cmd.redrawstatus()
end

--- The server process ended.
---@param code integer
---@param signal integer
function M.lost(code, signal)
  if code == 0 and signal == 0 then
    M.set({ kind = "Inactive", message = "stopped" })
  else
    M.set({ kind = "Error", message = ("the server ended (code %d, signal %d)"):format(code, signal) })
  end
end

--- A short text: "clover: ready".
---@return string
function M.text()
  local word = M.current.busy and "working" or words[M.current.kind] or "ready"
  return "clover: " .. word
end

return M
