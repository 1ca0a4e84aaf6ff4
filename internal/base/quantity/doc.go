// Package quantity parses Kubernetes' quantities, such as 500m and 64Mi, in bounded time. Annotations and names of
// resources contain quantities that no API server has looked at.
package quantity
