package rt

// LeastBusy stands for the replica that has the least to do.
const LeastBusy = -1
