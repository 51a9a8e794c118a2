package modelrt

import (
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/session"
	"github.com/popefgen/popefgen/rt/internal/settings"
)

// SessionOption is an option of [NewSession] and [OpenSession]: every
// [rt.Option] is one. Its method is for this module.
type SessionOption interface{ Session(*settings.Of[rt.Config]) }

// forSession is an option of sessions alone.
type forSession func(*settings.Of[rt.Config])

func (f forSession) Session(o *settings.Of[rt.Config]) { f(o) }

// Deferred makes a session without a device, which [rt.Session.Bind] then gives
// it. Without this option a session takes a device and loads the executable
// when it is made, and makes no session if that fails.
func Deferred() SessionOption {
	return forSession(func(o *settings.Of[rt.Config]) { o.Config.Deferred = true })
}

// sessionOptions returns what options say.
func sessionOptions(opts []SessionOption) (*session.Options, error) {
	o := session.Defaults()
	for _, opt := range opts {
		opt.Session(o)
	}
	return session.OptionsOf(o)
}
