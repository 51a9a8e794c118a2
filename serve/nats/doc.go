// Package natsserve computes jobs of a queue: a worker takes requests from a work queue of NATS JetStream, has the models of
// a server compute them, and stores what they answered; a client submits jobs and waits for their answers.
//
// A job is the body of a request as REST takes it, JSON or with binary tensors, and an answer the body that
// REST would have sent. Three streams hold all there is, so that any number of workers and clients may come and go:
//
//	popefgen.jobs.MODEL          the jobs, a work queue: gone once acknowledged
//	popefgen.answers.ID          one answer for each job, for a time
//	popefgen.dead.MODEL.ID       jobs that could not be answered, with the reason
//
// A worker acknowledges a job once its answer is stored, and says while it computes that it is still at it. If it dies,
// another worker gets the job. The stream of answers takes the first answer of a job and refuses any other, so a job that
// was computed twice is answered once.
package natsserve
