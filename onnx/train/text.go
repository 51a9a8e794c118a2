package train

import (
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph/optim"
)

// ParseLoss returns the loss that a text describes: a kind, = and an output if it is not plain of which, then settings with commas before them:
//
//	cross-entropy=logits,axis=-1,ignore=-100,labels=target,reduction=sum
//
// threshold is that of smooth-l1 and huber. Errors wrap [ErrOptions].
func ParseLoss(text string) (Loss, error) {
	words := strings.Split(text, ",")
	var l Loss
	l.Kind, l.Output, _ = strings.Cut(words[0], "=")
	settings := []string{"axis", "ignore", "labels", "reduction", "threshold"}
	for _, w := range words[1:] {
		name, value, ok := strings.Cut(strings.TrimSpace(w), "=")
		number, err := strconv.ParseInt(value, 10, 64)
		switch {
		case !ok || value == "":
			return l, refuse("loss %q: found %q, want a setting such as axis=-1; there are %s", text, w, strings.Join(settings, ", "))
		case (name == "axis" || name == "ignore") && err != nil:
			return l, refuse("loss %q: %s is %q, want a whole number", text, name, value)
		}
		switch name {
		case "axis":
			l.Axis = &number
		case "ignore":
			l.Ignore = &number
		case "labels":
			l.Labels = value
		case "reduction":
			if l.Reduction = optim.Reduction(value); l.Reduction != optim.Mean && l.Reduction != optim.Sum {
				return l, refuse("loss %q: reduction is %q, want mean or sum", text, value)
			}
		case "threshold":
			if l.Threshold, err = strconv.ParseFloat(value, 64); err != nil || !(l.Threshold > 0) {
				return l, refuse("loss %q: threshold is %q, want a number of more than 0", text, value)
			}
		default:
			return l, refuse("loss %q: there is no setting %q%s", text, name, nearest.DidYouMean(name, settings))
		}
	}
	return l, nil
}

// ParseReturn returns the output that a text names and which of its values are returned: NAME=all, NAME=final,
// NAME=sum, NAME=every:N or NAME=none. Errors wrap [ErrOptions].
func ParseReturn(text string) (output string, r Return, err error) {
	at := strings.LastIndexByte(text, '=')
	if at < 1 {
		return "", r, refuse("return %q: want OUTPUT=all, final, sum, every:N or none", text)
	}
	output, how := text[:at], strings.ToLower(text[at+1:])
	if how == "none" {
		return output, Return{None: true}, nil
	}
	if n, ok := strings.CutPrefix(how, "every:"); ok {
		r.Type = export.EveryN
		if r.N, err = strconv.ParseInt(n, 10, 64); err != nil {
			return "", r, refuse("return %q: found %q, want after how many batches a value is returned, as in every:10", text, n)
		}
		return output, r, nil
	}
	words := []string{"all", "final", "sum", "every:N", "none"}
	if r.Type, err = export.ParseReturn(how); err != nil || r.Type == export.EveryN {
		return "", r, refuse("return %q: want OUTPUT=all, final, sum, every:N or none%s", text, nearest.DidYouMean(how, words))
	}
	return output, r, nil
}
