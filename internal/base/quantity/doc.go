// Package quantity parses Kubernetes' quantities, such as 500m and 64Mi, in bounded time. Annotations and names of
// resources contain quantities that the API server does not check.
package quantity
