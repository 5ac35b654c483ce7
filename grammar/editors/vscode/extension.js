// extension.js: starts `fcpc lsp` for the fcp programs that VS Code opens.
const vscode = require('vscode');

let client;

exports.activate = function () {
    let library;
    try {
        library = require('vscode-languageclient/node');
    } catch (error) { // it was packed where npm was out of reach
        vscode.window.showWarningMessage('This package of fcpc has colours only: it was made without ' +
            'vscode-languageclient. `make vscode`, where npm reaches its registry, makes a whole one.');
        return undefined;
    }
    const command = vscode.workspace.getConfiguration('fcpc').get('path');
    client = new library.LanguageClient('fcpc', 'fcpc', {command, args: ['lsp']},
                                        {documentSelector: [{language: 'fcp'}]});
    return client.start();
};

exports.deactivate = () => client && client.stop();
