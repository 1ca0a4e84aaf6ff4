package plot

import "math"

// Line is a straight line fitted to points by least squares.
type Line struct {
	Slope     float64
	Intercept float64
	// Error is the standard error of the slope. It is 0 if all points lie on the line.
	Error float64
}

// Fit returns the line that fits the points best. It is level if there are fewer than three points, or if all have the
// same x.
func Fit(x, y []float64) Line {
	n := float64(len(x))
	var sumX, sumY float64
	for i := range x {
		sumX, sumY = sumX+x[i], sumY+y[i]
	}
	if len(x) < 3 {
		return Line{Intercept: sumY / max(1, n)}
	}
	meanX, meanY := sumX/n, sumY/n
	var xx, xy float64
	for i := range x {
		xx += (x[i] - meanX) * (x[i] - meanX)
		xy += (x[i] - meanX) * (y[i] - meanY)
	}
	if xx == 0 {
		return Line{Intercept: meanY}
	}
	l := Line{Slope: xy / xx}
	l.Intercept = meanY - l.Slope*meanX
	var rest float64
	for i := range x {
		d := y[i] - l.At(x[i])
		rest += d * d
	}
	l.Error = math.Sqrt(rest / (n - 2) / xx)
	return l
}

// At is the line's value at x.
func (l Line) At(x float64) float64 { return l.Intercept + l.Slope*x }

// Grows reports whether the slope is above zero by more than its noise, three standard errors.
func (l Line) Grows() bool { return l.Slope > 3*l.Error && l.Slope > 1e-9*math.Abs(l.Intercept) }
