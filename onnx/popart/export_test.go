package popart

// For tests of package popart_test.
var (
	LoggerOf   = loggerOf
	CBOROfJSON = cborOfJSON
)
