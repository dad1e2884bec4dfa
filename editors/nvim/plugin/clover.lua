if vim.g.loaded_clover then return end
vim.g.loaded_clover = true

if vim.fn.has("nvim-0.11") == 0 then
  vim.notify_once("clover needs Neovim 0.11 or later", vim.log.levels.WARN)
  return
end

vim.api.nvim_create_user_command("Clover", function(input) require("clover.commands").run(input) end, {
  nargs = "*",
  range = true,
  desc = "clover-code: fix, edit, message, next, suggest, pause, status, restart, log",
  complete = function(lead, line) return require("clover.commands").complete(lead, line) end,
})
