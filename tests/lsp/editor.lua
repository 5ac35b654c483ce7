-- editor.lua: Neovim as an editor of fcp programs. tests/lsp/run.sh starts it in a folder with a.fcp, after the lines
-- that grammar/editors/README.md gives for Neovim. Prints "ok NAME" or "FAILED NAME: what is there instead".
local function say(line) io.stdout:write(line .. '\n') end
local function expect(name, good, instead)
    if good then say('ok ' .. name) else say('FAILED ' .. name .. ': ' .. vim.inspect(instead):gsub('%s+', ' ')) end
end
local function text() return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, true), '\n') end
-- Asks the server about the place of the first match of a pattern, `more` characters on.
local function ask(method, pattern, more, params)
    vim.fn.cursor(1, 1)
    local row = vim.fn.search(pattern, 'c')
    vim.fn.cursor(row, vim.fn.col('.') + (more or 0))
    local all = vim.tbl_extend('force', vim.lsp.util.make_range_params(), vim.lsp.util.make_position_params(), params or {})
    local answer = vim.lsp.buf_request_sync(0, 'textDocument/' .. method, all, 10000)
    local _, first = next(answer or {})
    return first and (first.result or first.error)
end
local function messages()
    local list = {}
    for _, d in ipairs(vim.diagnostic.get(0)) do table.insert(list, d.message) end
    return list
end
local function wait_for(condition) return vim.wait(10000, condition, 20) end

vim.cmd('edit a.fcp')
expect('the server starts', wait_for(function() return #vim.lsp.buf_get_clients(0) > 0 end), vim.lsp.get_log_path())
expect('a diagnostic', wait_for(function() return #messages() == 1 end), messages())
local first = vim.diagnostic.get(0)[1] or {}
expect('its place', first.lnum == 2 and first.col == 27 and first.end_col == 33, first)
expect('its hint', (first.message or ''):find("did you mean 'causal'", 1, true), first)
expect('its code', first.code == 'E200' and first.severity == vim.diagnostic.severity.ERROR, first)

-- the quick fix, as the editor makes it
local fixes = ask('codeAction', 'cuasal', 0, {context = {diagnostics = {}}})
expect('a quick fix', fixes and fixes[1] and fixes[1].title == 'Write causal', fixes)
if fixes and fixes[1] then vim.lsp.util.apply_workspace_edit(fixes[1].edit, 'utf-16') end
expect('the text with it', text():find('mask = causal', 1, true), text())
expect('no diagnostic any more', wait_for(function() return #messages() == 0 end), messages())

-- edits go to the server as the editor makes them: behind characters of one, two and four bytes
local comment, twice = '# ä € 😀 ', 'cluster { gpus = 2 }'
vim.api.nvim_buf_set_text(0, 0, 0, 0, 0, {comment .. 'x', ''})
vim.api.nvim_buf_set_text(0, 0, #comment, 0, #comment + 1, {'', twice})
expect('an error after edits', wait_for(function() return #messages() == 1 end), messages())
vim.api.nvim_buf_set_text(0, 0, #comment, 1, #twice, {'y'})
expect('the text after edits', text():find('^# ä € 😀 y\nmodel'), text())
expect('none after the next', wait_for(function() return #messages() == 0 end), messages())

local hover = ask('hover', 'causal')
expect('hover', hover and hover.contents and hover.contents.value:find('mask causal = k <= q', 1, true), hover)
expect('hover knows pairs', wait_for(function()
    local said = ask('hover', 'causal')
    return said and said.contents.value:find('8.39 M pairs', 1, true)
end), hover)
local found = ask('completion', 'causal', 2)
expect('completion', found and #found > 20, found)
local all = ask('documentSymbol', 'plan')
expect('outline', all and #all == 5, all)
local where = ask('definition', 'own', 1)
expect('definition', where and where[1] and where[1].range.start.line == 5, where)

local names = ask('rename', 'own', 1, {newName = 'mine'})
expect('rename', names and names.changes, names)
if names and names.changes then vim.lsp.util.apply_workspace_edit(names, 'utf-16') end
expect('the text with it', text():find('mask mine(w = 8) = q - k < w # own', 1, true), text())
local refused = ask('rename', 'mine', 1, {newName = 'window'})
expect('a rename that is refused', refused and refused.code == -32803, refused)

vim.lsp.buf.formatting_sync({}, 10000)
expect('formatting', text():find('plan {\n    block = 128\n    mask = causal\n}', 1, true), text())
local before = text()
vim.lsp.buf.formatting_sync({}, 10000)
expect('formatting again', text() == before, text())
