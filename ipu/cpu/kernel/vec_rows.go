package kernel

// softmaxStrip is how many neighbouring lanes are normalised together where
// the axis is not the last, and how many exponentials are computed at a time.
const softmaxStrip = 256

// shortRows is the most elements of a row that is normalised together with
// others, as a column beside theirs.
const shortRows = 16
