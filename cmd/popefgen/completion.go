package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"
)

// shells are those for which there is a script. Each asks the program itself
// what the word at the cursor may become, with __complete and the words so far;
// where there is nothing, it completes files. They do so after popefgen and
// after go tool popefgen; what else completes go goes on doing so.
var shells = []string{"bash", "zsh", "fish"}

const (
	bashCompletion = `# bash completion for popefgen and go tool popefgen
_popefgen() {
  local line="${COMP_LINE:0:COMP_POINT}" at=0
  local -a words
  read -ra words <<< "$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  if [[ ${words[0]} == go ]]; then
    for ((at = 2; at < ${#words[@]}; at++)); do
      [[ ${words[at]} == -* ]] || break
    done
  fi
  local IFS=$'\n'
  COMPREPLY=($("${words[@]:0:at+1}" __complete "${words[@]:at+1}" 2>/dev/null | cut -f 1))
}
_popefgen_go() {
  if [[ ${COMP_LINE:0:COMP_POINT} =~ ^[[:space:]]*go[[:space:]]+tool([[:space:]]+-[^[:space:]]*)*[[:space:]]+popefgen[[:space:]] ]]; then
    _popefgen
  elif [[ -n $_popefgen_before_f ]]; then
    "$_popefgen_before_f" "$@"
  elif [[ -n $_popefgen_before_c ]]; then
    local IFS=$'\n'
    COMPREPLY=($(export COMP_LINE COMP_POINT; "$_popefgen_before_c" "$@" 2>/dev/null))
  fi
}
if ! complete -p go 2>/dev/null | grep -q _popefgen_go; then
  _popefgen_before_f=$(complete -p go 2>/dev/null | sed -n 's/.* -F \([^ ]*\) .*/\1/p')
  _popefgen_before_c=$(complete -p go 2>/dev/null | sed -n 's/.* -C \([^ ]*\) .*/\1/p')
fi
complete -o default -F _popefgen popefgen
complete -o default -F _popefgen_go go
`
	zshCompletion = `#compdef popefgen
# zsh completion for popefgen and go tool popefgen
_popefgen_at() {
  at=1
  if [[ ${words[1]} == go ]]; then
    for ((at = 3; at < CURRENT; at++)); do
      [[ ${words[at]} == -* ]] || break
    done
  fi
}
_popefgen() {
  local -i at
  _popefgen_at
  local -a found
  found=(${(f)"$("${(@)words[1,at]}" __complete "${(@)words[at+1,CURRENT]}" 2>/dev/null | cut -f 1)"})
  if (( ${#found} )); then
    compadd -- "${found[@]}"
  else
    _files
  fi
}
_popefgen_go() {
  local -i at
  _popefgen_at
  if [[ ${words[2]} == tool && ${words[at]} == popefgen ]] && (( at < CURRENT )); then
    _popefgen
  elif [[ -n $_popefgen_before ]]; then
    $_popefgen_before "$@"
  else
    _files
  fi
}
if [[ ${_comps[go]} != _popefgen_go ]]; then
  typeset -g _popefgen_before=${_comps[go]}
fi
compdef _popefgen popefgen
compdef _popefgen_go go
`
	fishCompletion = `# fish completion for popefgen and go tool popefgen
function __popefgen_candidates
    set -l words (commandline -opc)
    set -l at 1
    if test "$words[1]" = go
        set at 3
        while string match -q -- '-*' "$words[$at]"
            set at (math $at + 1)
        end
    end
    set -l rest
    if test (count $words) -gt $at
        set rest $words[(math $at + 1)..-1]
    end
    $words[1..$at] __complete $rest (commandline -ct) 2>/dev/null
end
function __popefgen_any
    test (count (__popefgen_candidates)) -gt 0
end
function __popefgen_is_tool
    string match -qr -- '^go +tool( +-[^ ]*)* +popefgen ' (commandline -opc | string join ' ')' '
end
complete -c popefgen -f -n __popefgen_any -a '(__popefgen_candidates)'
complete -c go -f -n '__popefgen_is_tool; and __popefgen_any' -a '(__popefgen_candidates)'
`
)

var completionCommand = &cli.Command{
	Name:  "completion",
	Usage: "print a shell's completion script, for popefgen and go tool popefgen",
	UsageText: "popefgen completion bash|zsh|fish\n\nexample: source <(popefgen completion bash)\n" +
		"         source <(popefgen completion zsh)      # after compinit\n         popefgen completion fish | source",
	ArgsUsage: "bash|zsh|fish",
	Action: func(c *cli.Context) error {
		shell, err := oneArg(c, "shell")
		if err != nil {
			return err
		}
		script, ok := map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[shell]
		if !ok {
			return fmt.Errorf("completion: shell %q: want %s", shell, strings.Join(shells[:len(shells)-1], ", ")+" or "+shells[len(shells)-1])
		}
		_, err = io.WriteString(c.App.Writer, script)
		return err
	},
}
