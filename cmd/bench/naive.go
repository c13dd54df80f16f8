package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"
)

// naiveEvent is what a hand-written handler decodes into.
type naiveEvent struct {
	ID    string            `json:"id"`
	Event string            `json:"event"`
	User  string            `json:"user"`
	TS    int64             `json:"ts"`
	Props map[string]string `json:"props"`
}

// naiveCount is the design that people build by hand: one pipeline per event.
func naiveCount(ctx context.Context, rdb *redis.Client, e *naiveEvent) error {
	t := time.UnixMilli(e.TS).UTC()
	day, hour := t.Format("20060102"), t.Format("2006010215")
	p := rdb.Pipeline()
	p.Incr(ctx, "pv:"+e.Event+":"+day)
	p.PFAdd(ctx, "uv:"+e.Event+":"+day, e.User)
	p.PFAdd(ctx, "uv:"+e.Event+":"+hour, e.User)
	p.ZIncrBy(ctx, "top:"+e.Event+":"+day, 1, e.Props["page"])
	_, err := p.Exec(ctx)
	return err
}

// serverMain is a server process to compare with: decode (parse and forget), or naive (parse and count). It prints its address.
func serverMain(kind, redisAddr string) error {
	var rdb *redis.Client
	if kind == "naive" {
		rdb = redis.NewClient(&redis.Options{Addr: redisAddr})
	}
	handle := func(ctx context.Context, e *naiveEvent) error {
		if rdb == nil {
			return nil
		}
		return naiveCount(ctx, rdb, e)
	}
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.POST("/one", func(c *gin.Context) {
		var e naiveEvent
		if err := c.ShouldBindJSON(&e); err != nil {
			c.JSON(http.StatusBadRequest, gin.H{"error": err.Error()})
			return
		}
		if err := handle(c, &e); err != nil {
			c.JSON(http.StatusInternalServerError, gin.H{"error": err.Error()})
			return
		}
		c.JSON(http.StatusAccepted, gin.H{"received": 1, "accepted": 1})
	})
	r.POST("/batch", func(c *gin.Context) {
		sc := bufio.NewScanner(c.Request.Body)
		sc.Buffer(make([]byte, 64<<10), 1<<20)
		n := 0
		for sc.Scan() {
			var e naiveEvent
			if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
				c.JSON(http.StatusBadRequest, gin.H{"error": err.Error()})
				return
			}
			if err := handle(c, &e); err != nil {
				c.JSON(http.StatusInternalServerError, gin.H{"error": err.Error()})
				return
			}
			n++
		}
		c.JSON(http.StatusAccepted, gin.H{"received": n, "accepted": n})
	})
	if kind == "judge" {
		r.POST("/judge", judgeOnly())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, l.Addr())
	return http.Serve(l, r)
}
