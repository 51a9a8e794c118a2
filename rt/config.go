package rt

import (
	"log/slog"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef/contract"
)

// Config is what options say, of a session or a runner: each as it was given, or
// as it is by default. Its documentation is that of the option.
type Config struct {
	ModelFiles     []string                         // [WithModelFile]
	ModelBytes     []byte                           // [WithModelBytes]
	PrivateCopy    bool                             // [WithPrivateCopy]
	Backend        string                           // [WithBackend]; by default the one that was found
	Device         ipu.Device                       // [WithDevice]; nil: found when it is opened
	Deferred       bool                             // modelrt.Deferred
	Manager        *ipu.Manager                     // [WithManager]
	Wait           ipu.Wait                         // [WithWait]
	DeviceID       *int                             // [WithDeviceID]; nil: any
	DeviceOptions  []ipu.Option                     // [WithDeviceOption]
	Simulation     *ipu.Simulation                  // [WithSimulation]; nil: a device that exists
	EngineOptions  []ipu.Option                     // [WithEngineOption], [WithThreads]
	LookAhead      string                           // [WithLookAhead]; "": Poplar decides
	SingleCaller   bool                             // [SingleCaller]
	MaxWaiting     int                              // [WithMaxWaiting]; -1: any number
	Timed          bool                             // [Timed]
	SkipHashCheck  bool                             // [SkipHashCheck]
	DataPolicy     func(contract.Anchor) DataPolicy // [WithDataPolicy]; nil: all data of the files
	WrapFeeds      bool                             // [WrapFeeds]
	SaveOnUnbind   bool                             // [SaveOnUnbind]
	AutoReset      bool                             // [AutoReset]
	Replicas       int                              // [WithReplicas]; 1 for a session
	ReplicaDevices map[int]ipu.Device               // [WithReplicaDevices]
	QueueDepth     int                              // of the generated package; 0 for a session
	Frozen         []Weight                         // [WithData], [Freeze]
	Checkpoint     string                           // [WithCheckpoint]; "": the data of the files
	FiniteLoss     bool                             // [WithFiniteLoss]
	Batching       BatchPolicy                      // [WithBatching]
	Packing        PackPolicy                       // [WithPacking]; no timeout: it was not given
	Overlap        int                              // [WithOverlap]; 0: what the model's engine option "overlap" says, or 1
	Observer       Observer                         // [WithObserver]
	Logger         *slog.Logger                     // [WithLogger]; nil: nothing is logged
}
