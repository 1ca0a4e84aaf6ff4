package pod

import corev1 "k8s.io/api/core/v1"

// QOS returns the pod's quality-of-service class. Pod-level resources alone decide if they are set (KEP-2837).
// Otherwise all containers except ephemeral ones count.
func QOS(p *corev1.Pod) corev1.PodQOSClass {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	guaranteed := true
	add := func(r corev1.ResourceRequirements) {
		sumUp(requests, r.Requests)
		if sumUp(limits, r.Limits) < 2 {
			guaranteed = false
		}
	}
	if p.Spec.Resources != nil {
		sumUp(requests, p.Spec.Resources.Requests)
		if len(p.Spec.Resources.Limits) > 0 && sumUp(limits, p.Spec.Resources.Limits) < 2 {
			guaranteed = false
		}
	} else {
		for i := range p.Spec.Containers {
			add(p.Spec.Containers[i].Resources)
		}
		for i := range p.Spec.InitContainers {
			add(p.Spec.InitContainers[i].Resources)
		}
	}
	if len(requests) == 0 && len(limits) == 0 {
		return corev1.PodQOSBestEffort
	}
	if !guaranteed || len(requests) != len(limits) {
		return corev1.PodQOSBurstable
	}
	for name, q := range requests {
		if limit, ok := limits[name]; !ok || limit.Cmp(q) != 0 {
			return corev1.PodQOSBurstable
		}
	}
	return corev1.PodQOSGuaranteed
}

// sumUp adds the CPU and memory of list to total. It returns for how many of the two list has a positive amount.
func sumUp(total, list corev1.ResourceList) int {
	positive := 0
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		q, ok := list[name]
		if !ok || q.Sign() <= 0 {
			continue
		}
		positive++
		sum := total[name]
		sum.Add(q)
		total[name] = sum
	}
	return positive
}
