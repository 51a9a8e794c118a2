package main

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"
)

// The scripts ask the program itself for commands and flags, through the
// library's hidden flag; all else is files.
const (
	bashCompletion = `_popefgen() {
  local current="${COMP_WORDS[COMP_CWORD]}"
  COMPREPLY=()
  if [[ $current == -* || $COMP_CWORD -eq 1 ]]; then
    COMPREPLY=($(compgen -W "$("${COMP_WORDS[@]:0:COMP_CWORD}" $current --generate-bash-completion 2>/dev/null)" -- "$current"))
  fi
}
complete -o default -F _popefgen popefgen
`
	zshCompletion = `#compdef popefgen
_popefgen() {
  local current=${words[CURRENT]}
  local -a candidates
  if [[ $current == -* || $CURRENT -eq 2 ]]; then
    candidates=(${(f)"$(${words[1,CURRENT-1]} $current --generate-bash-completion 2>/dev/null)"})
    compadd -a candidates
  else
    _files
  fi
}
compdef _popefgen popefgen
`
)

var completionCommand = &cli.Command{
	Name:      "completion",
	Usage:     "print a shell's completion script",
	UsageText: "popefgen completion bash|zsh|fish\n\nexample: source <(popefgen completion bash)\n         popefgen completion fish > ~/.config/fish/completions/popefgen.fish",
	ArgsUsage: "bash|zsh|fish",
	Action: func(c *cli.Context) error {
		shell, err := oneArg(c, "shell")
		if err != nil {
			return err
		}
		var script string
		switch shell {
		case "bash":
			script = bashCompletion
		case "zsh":
			script = zshCompletion
		case "fish":
			if script, err = c.App.ToFishCompletion(); err != nil {
				return fmt.Errorf("completion: %w", err)
			}
		default:
			return fmt.Errorf("completion: shell %q: want bash, zsh or fish", shell)
		}
		_, err = io.WriteString(c.App.Writer, script)
		return err
	},
}
