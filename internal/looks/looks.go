// Package looks is how pages that popefgen makes for people look: colours, by day and by night, and what every page has.
package looks

import _ "embed"

var (
	//go:embed palette.css
	Palette string // the colours, as variables of CSS

	//go:embed base.css
	Base string // headings, buttons, lists of properties, in those colours
)
