package api

import (
	"strconv"

	"github.com/rollcall/rollcall/counters"
)

// appendCSV writes a series as a table for machines: no apostrophes, no byte order mark, one header line.
func appendCSV(b []byte, c *counters.Counts) []byte {
	b = append(b, "label,from,to,pv,uv,uv_method,uv_error,complete\r\n"...)
	for _, r := range c.Rows {
		b = append(append(b, r.Label...), ',')
		b = append(append(b, r.From...), ',')
		b = append(append(b, r.To...), ',')
		b = append(strconv.AppendInt(b, r.PV, 10), ',')
		b = append(strconv.AppendInt(b, r.UV.Value, 10), ',')
		b = append(append(b, r.UV.Method...), ',')
		b = append(strconv.AppendFloat(b, r.UV.Error, 'f', -1, 64), ',')
		b = append(strconv.AppendBool(b, r.Complete), "\r\n"...)
	}
	return b
}
