// Package podstatus computes the status of a pod. It owns no state.
//
// Compute is pure: from the pod, what the runtime shows, the plan, the probes and the
// status before, it returns the PodStatus that users and the API server see. The rules
// are those of the kubelet of Kubernetes 1.36. Package status calls it, and publishes
// the result.
//
//	Pod, Observed, Plan, Stop, probes, Previous --Compute--> PodStatus
//
// A phase goes one way. It is Succeeded or Failed only when no container of the
// pod runs any more, so that whoever sees it may take the pod's resources:
//
//	Pending --> Running --> Succeeded
//	   |           |
//	   +-----------+------> Failed
package podstatus
