// Package podstatus computes the status of pods and owns the table it is in.
//
// Compute is pure: from the pod, what the runtime shows, the plan, the probes
// and the status before, it gives the PodStatus that users and the API server
// see. The rules are the kubelet's, of Kubernetes 1.36. Statuses is the only
// writer of the status table: it adds what has to be remembered (the status
// before) and what has to be read once (termination messages), and writes when
// something changed. Everybody else reads the table.
//
//	Pod, Observed, Plan, Stop, probes --Compute--> PodStatus --Statuses--> [status]
//	                                     ^                        |
//	                                     +------- Previous -------+
//
// A phase goes one way. It is Succeeded or Failed only when no container of the
// pod runs any more, so that whoever sees it may take the pod's resources:
//
//	Pending --> Running --> Succeeded
//	   |           |
//	   +-----------+------> Failed
package podstatus
