// Package podstatus computes the status of a pod. It owns no state.
//
// Compute is pure. It computes the PodStatus that users and the API server see. Its input is the pod, the state in the
// runtime, the plan, the probes and the previous status. It follows the rules of the kubelet of Kubernetes 1.36.
// Package status calls it, and publishes the result.
//
//	Pod, Observed, Plan, Stop, probes, Previous --Compute--> PodStatus
//
// A phase goes one way. It becomes Succeeded or Failed only when no container of the pod runs any more. When the
// scheduler sees such a phase, it gives the pod's resources to other pods:
//
//	Pending --> Running --> Succeeded
//	   |           |
//	   +-----------+------> Failed
package podstatus
