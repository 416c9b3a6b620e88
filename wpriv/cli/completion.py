"""wpriv completion: a script for a shell, which asks this program for the words that can stand at the cursor."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from wpriv.cli import catalog, output
from wpriv.cli.parsing import LazyGroup, argument
from wpriv.config import shipped
from wpriv.errors import UnknownName
from wpriv.hints import fold, plain

# Each script hands over the words up to the cursor, whole (bash splits them at = and : as well), and offers files where
# nothing is offered. A word that ends in = or / is followed by no blank.
SCRIPTS = {
    "bash": r"""_wpriv_completion() {
    local line="${COMP_LINE:0:COMP_POINT}" current="" kept IFS=$' \t\n'
    local -a words
    read -ra words <<< "$line"
    [[ "$line" == *[[:space:]] ]] && words+=("")
    current="${words[${#words[@]}-1]}"
    kept="${current%"${current##*[=:]}"}"
    IFS=$'\n' COMPREPLY=($("$1" completion bash -- "${words[@]:1}" 2>/dev/null))
    COMPREPLY=("${COMPREPLY[@]#"$kept"}")
    [[ ${#COMPREPLY[@]} == 1 && "${COMPREPLY[0]}" == *[=/:] ]] && compopt -o nospace 2>/dev/null
    [[ ${#COMPREPLY[@]} == 1 && -z "${COMPREPLY[0]}" ]] && COMPREPLY=()
    return 0
}
complete -o bashdefault -o default -F _wpriv_completion wpriv""",
    "zsh": r"""#compdef wpriv
_wpriv_completion() {
    local line
    local -a whole begun
    for line in "${(@f)$(${words[1]} completion zsh -- "${(@Q)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)}"; do
        case "${line%%$'\t'*}" in
            '') ;;
            *[=/:]) begun+=("${${line//:/\\:}/$'\t'/:}") ;;
            *) whole+=("${${line//:/\\:}/$'\t'/:}") ;;
        esac
    done
    if (( ${#whole} + ${#begun} == 0 )); then _files; return; fi
    (( ${#whole} )) && _describe -V wpriv whole
    (( ${#begun} )) && _describe -V wpriv begun -S ''
}
compdef _wpriv_completion wpriv""",
    "fish": r"""function __wpriv_completion
    set -l before (commandline -opc)
    set -l offered ($before[1] completion fish -- $before[2..-1] (commandline -ct) 2>/dev/null)
    if test (count $offered) -gt 0
        printf '%s\n' $offered
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c wpriv -f -a '(__wpriv_completion)'""",
}
# the values of parameters of commands that take one of a few words
FEW = {
    "device": ("cpu", "cuda"),
    "backend": ("loky", "multiprocessing", "threading", "submitit"),
    "method": ("one-run", "two-worlds"),
    "style": ("screen", "paper", "dark"),
    "formats": ("png", "pdf", "svg"),
    "columns": ("1", "2"),
    "form": ("summary", "html", "registry", "checklist"),
    "log": ("mlflow", "tensorboard", "wandb"),
    "formula": ("analytic", "eq4"),
    "dtype": ("float32", "float64"),
    "shell": tuple(SCRIPTS),
    "sweep": (
        *("n=", "sigma=", "scale=", "rate=", "eps=", "delta=", "epochs=", "batch="),
        *("mech=", "sampling=", "adjacency=", "accountant="),
    ),
    "what": ("all", "plc", "wdp", "dpswd", "wgrad", "ldp"),
}
# the kinds of ``wpriv list`` whose names other parameters take
NAMES = {
    "mech": "mechanisms",
    "accountant": "accountants",
    "sampling": "samplings",
    "adjacency": "adjacencies",
    "figure": "figures",
    "data": "data",
}
# the verbs that run recipes of the kind of their name
KINDS = ("budget", "calibrate", "compare", "privatize", "release", "train", "verify")
RECORDS, RECIPES = (".npz", ".npy", ".csv"), (".yaml", ".yml")
Words = dict[str, str]  # each with what it is


def command(
    shell: str = argument("SHELL", "bash, zsh or fish."),
    words: list[str] | None = argument(
        "-- WORD...", "Print what completes the last of these words of a command line.", default=None
    ),
) -> None:
    """Print the completion of a shell: flags, commands, mechanisms, accountants, recipes, parameters, data sets.

    wpriv completion bash

    wpriv completion bash -- budget --mech ga

    For bash or zsh put `eval "$(wpriv completion bash)"` (or zsh) into the start-up file of the shell, for fish
    `wpriv completion fish | source` into config.fish.
    """
    if fold(shell) not in SCRIPTS:
        raise UnknownName("shell", shell, list(SCRIPTS))
    if words is None:
        output.emit(SCRIPTS[fold(shell)])
    elif fold(shell) == "bash":
        output.emit(*offered(words))
    else:
        output.emit(*(f"{word}\t{text}" if text else word for word, text in offered(words, described=True).items()))


@dataclass
class _Line:
    """The command line before the cursor: its command, the values given to options, and the arguments."""

    command: Any
    options: dict[str, list[str]] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    waiting: Any = None  # an option whose value is next

    def take(self, word: str) -> None:
        """Read one more word."""
        by_flag = {flag: each for each in self.command.params for flag in each.opts if flag.startswith("-")}
        flag, equals, value = word.partition("=")
        if self.waiting is not None:
            self.options.setdefault(self.waiting.name, []).append(word)
            self.waiting = None
        elif flag in by_flag:
            self.options.setdefault(by_flag[flag].name, []).extend([value] * bool(equals))
            self.waiting = None if equals or by_flag[flag].is_flag else by_flag[flag]
        elif not word.startswith("-"):
            inner = _commands(self.command).get(word)
            if inner is None:
                self.arguments.append(word)
            else:
                self.command, self.options = inner(), {}


def offered(words: Sequence[str], described: bool = False) -> Words:
    """Return the words that can stand in place of the last of some words of a command line, which they begin with."""
    *before, current = words or [""]
    line = _Line(LazyGroup())
    for word in before[1:] if before[:1] == ["help"] else before:
        line.take(word)
    flag, equals, value = current.partition("=")
    option = next((each for each in line.command.params if flag in each.opts), None)
    if line.waiting is not None:
        found = dict(_values(line.waiting, line, current, described))
    elif equals and option is not None:
        found = {f"{flag}={word}": text for word, text in _values(option, line, value, described)}
    elif current.startswith("-"):
        found = _flags(line)
    elif (inner := _commands(line.command)) and not line.arguments:
        found = {name: _sentence(make().help) if described else "" for name, make in inner.items()}
    else:
        found = dict(_values(_argument(line), line, current, described))
    return {word: text for word, text in found.items() if word.startswith(current)}


def _commands(command: Any) -> dict[str, Callable[[], Any]]:
    """The commands of a group, each with a function that loads it."""
    if isinstance(command, LazyGroup):
        return {name: partial(command.get_command, None, name) for name in command.list_commands(None)}
    return {name: partial(command.commands.get, name) for name in getattr(command, "commands", {})}


def _flags(line: _Line) -> Words:
    """The options that may still be given, with their help."""
    options = [each for each in line.command.params if each.param_type_name == "option"]
    free = [each for each in options if each.multiple or each.name not in line.options]
    return {**{flag: _sentence(each.help) for each in free for flag in each.opts}, "--help": "Show the help."}


def _argument(line: _Line) -> Any:
    """The argument that stands at the cursor: the last one may be repeated; None where there is no more."""
    arguments = [each for each in line.command.params if each.param_type_name == "argument"]
    index = len(line.arguments)
    if arguments and arguments[-1].nargs == -1:
        index = min(index, len(arguments) - 1)
    return arguments[index] if index < len(arguments) else None


def _sentence(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split())


def _values(parameter: Any, line: _Line, current: str, described: bool) -> Iterator[tuple[str, str]]:
    """The values of an option or an argument, each with what it is; none where the shell offers files."""
    name = "" if parameter is None else parameter.name
    path = getattr(line.command, "name", "")
    if name in FEW:
        yield from dict.fromkeys(FEW[name], "").items()
    elif name == "param":
        yield from _parameters(line)
    elif name == "kind":
        yield from catalog.KINDS.items()
        yield from ((each, f"one of the {kind}") for kind in catalog.KINDS for each in catalog.names(kind))
    elif name == "name":
        kind = (line.arguments or [""])[0] if path == "list" else "data"
        yield from _names(catalog.kind_of(kind), described)
    elif name in NAMES:
        local = name == "mech" and path == "privatize"
        yield from ((each, text) for each, text in _names(NAMES[name], described) if not local or each[:6] == "local-")
        yield from [("all", "all accountants")] * (name == "accountant")
        yield from _files(current, RECORDS) if name == "data" else ()
    elif name in ("recipe", "recipes", "source", "beginning", "words") and path != "completion":
        yield from _recipes(path) if path not in ("report", "plot") else ()
        yield from _files(current, RECIPES if name != "source" else (*RECIPES, ".json"))


def _names(kind: str | None, described: bool) -> Iterator[tuple[str, str]]:
    if kind is not None:
        yield from (catalog.about(kind) if described else dict.fromkeys(catalog.names(kind), "")).items()


def _recipes(command: str) -> Iterator[tuple[str, str]]:
    """The shipped recipes, for a verb those that it runs, each with the number in the paper that it gives."""
    wanted = {"audit": "train", "explain": "budget"}.get(command, command)
    for name, path in shipped().items():
        text = path.read_text(encoding="utf-8")
        kind, source = (re.search(rf"(?m)^{key}: *[\"']?([^\"'\n]*)", text) for key in ("kind", "source"))
        if wanted not in KINDS or (kind is not None and kind[1].strip() == wanted):
            yield name, "" if source is None else source[1]


def _parameters(line: _Line) -> Iterator[tuple[str, str]]:
    """The parameters of the mechanism, or of the reader of data, that the line names; given ones are left out."""
    kind, named = ("mechanisms", line.options.get("mech")) if "mech" in line.options else ("data", line.arguments)
    named = line.options.get("data", named)
    word = plain("mechanisms", named[0]) if named else ""
    given = {entry.partition("=")[0] for entry in line.options.get("param", ())}
    for name, text in catalog.parameter_names(kind, word).items():
        if name not in given:
            yield f"{name}=", text


def _files(current: str, suffixes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Files of some suffixes, and folders, whose paths begin with a text."""
    folder, slash, start = current.rpartition("/")
    try:
        paths = sorted(Path(folder + slash or ".").expanduser().iterdir())
    except OSError:
        return
    for path in paths:
        if path.name.startswith(start) and not path.name.startswith("."):
            if path.is_dir():
                yield f"{folder}{slash}{path.name}/", "folder"
            elif path.suffix in suffixes:
                yield f"{folder}{slash}{path.name}", "file"
