package rt

import "log/slog"

// The environment variables that say what sessions log unless [WithLogger]
// does.
const (
	// LogLevelVariable names the least level that is logged: TRACE, DEBUG,
	// INFO, WARN, ERR or OFF, in any case. Without it nothing is logged.
	LogLevelVariable = "POPEF_LOG_LEVEL"
	// LogDestVariable says where to: "stderr", as without it, "stdout", or the
	// name of a file, which is appended to.
	LogDestVariable = "POPEF_LOG_DEST"
)

// LevelTrace is the level of every single request, below [slog.LevelDebug].
const LevelTrace = slog.LevelDebug - 4
