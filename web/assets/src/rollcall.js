// The browser script. docs/browser.md tells how a page uses it and what it sends. `go generate ./web/assets` writes rollcall.js from
// it, which the server hands out; one test keeps the two alike, another keeps the result within 2 KiB gzipped.
(() => {
  "use strict";

  const version = "1.0.0"; // also in the ETag; raise it with every change of what the script does

  const LINGER = 1000; // ms that an event waits for others
  const BATCH = 50; // so many waiting events do not wait longer
  const ROOM = 60000; // bytes in flight; a browser refuses requests that outlive their page beyond 65,536 bytes at a time. Half of
  // it is left for the end of the page
  const HELD = 4 << 20; // bytes of events waiting; the oldest are dropped beyond
  const PATIENCE = 30000; // ms until a request without an answer has failed
  const DOUBLINGS = 8; // the longest pause between two tries is 2^8 s, on average
  const PROP = 1024; // bytes of a prop's value

  const script = document.currentScript;
  const options = script ? script.dataset : {};
  if (!options.key) {
    console.error("rollcall: the script's tag needs data-key");
    return;
  }
  const url = new URL("v1/events?key=" + encodeURIComponent(options.key), script.src);
  const outlives = "keepalive" in Request.prototype;
  const encoder = new TextEncoder();

  const text = (v) => (v == null ? "" : String(v));

  let user = text(options.user);
  let path; // of the last page view

  let waiting = []; // [JSON, bytes] of each event
  let size = 0; // bytes of those
  const flying = new Set(); // batches without an answer
  let busy = 0; // bytes of those
  let failures = 0; // in a row
  let timer = 0;

  const random = () =>
    Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => (b + 256).toString(16).slice(1)).join("");

  // Storage is touched only if the page has asked for a visitor id. It may be forbidden: then there is none.
  const store = (use) => {
    try {
      if (options.visitor == "session" || options.visitor == "local") return use(sessionStorage);
    } catch {}
  };
  const saved = "rollcall:" + options.key;

  const visitor = () =>
    store((s) => {
      if (options.visitor == "local") s = localStorage;
      const id = s.rollcall || random();
      return (s.rollcall = id);
    });

  // What is longer than the server takes is cut, between two characters. Half a surrogate pair becomes U+FFFD.
  const cut = (text) => {
    const bytes = new Uint8Array(PROP);
    return new TextDecoder().decode(bytes.subarray(0, encoder.encodeInto(text, bytes).written));
  };

  const flat = (props) => {
    const out = {};
    for (const name of Object.keys(props || {})) {
      const v = props[name];
      if (v != null) {
        out[name] =
          typeof v == "number" || typeof v == "boolean" ? v : cut(typeof v == "object" ? JSON.stringify(v) : String(v));
      }
    }
    return out;
  };

  const grow = (bytes) => {
    for (size += bytes; size > HELD; ) size -= waiting.shift()[1];
  };

  const hold = (json) => {
    const bytes = encoder.encode(json).length + 1;
    waiting.push([json, bytes]);
    grow(bytes);
  };

  const later = (ms) => {
    clearTimeout(timer);
    timer = setTimeout(() => flush(), ms);
  };

  // flush sends what fits. Otherwise than at the end of the page there is one request at a time: its answer sends the next.
  const flush = (end) => {
    clearTimeout(timer);
    timer = 0;
    if (busy && !end) return;
    const room = end ? ROOM : ROOM / 2;
    let count = 0;
    let bytes = 0;
    // An event that never fits goes alone; above ROOM it does not outlive its page.
    while (count < waiting.length && (busy + bytes + waiting[count][1] <= room || !(busy + bytes))) {
      bytes += waiting[count++][1];
    }
    if (!count) return;
    const batch = waiting.splice(0, count);
    size -= bytes;
    busy += bytes;
    flying.add(batch);
    const body = `{"sent_at":${Date.now()},"events":[${batch.map((e) => e[0])}]}`;

    const failed = (after) => {
      waiting = batch.concat(waiting);
      grow(bytes);
      failures++;
      later(Math.min(+after || 0, 3600) * 1000 + 1000 * 2 ** Math.min(failures, DOUBLINGS) * (0.5 + Math.random()));
    };
    const landed = () => {
      flying.delete(batch);
      busy -= bytes;
    };
    new Promise((done) =>
      done(
        end && !outlives && navigator.sendBeacon(url, body)
          ? new Response()
          : fetch(url, {
              method: "POST",
              body, // a string is text/plain: no preflight
              keepalive: bytes <= ROOM,
              credentials: "omit",
              referrerPolicy: "strict-origin",
              signal: AbortSignal.timeout && AbortSignal.timeout(PATIENCE),
            }),
      ),
    )
      // Chromium counts a request as in flight until its answer has been read.
      .then((r) => r.text().then(() => r, () => r))
      .then(
        (r) => {
          landed();
          if (r.status == 429 || r.status > 499) return failed(r.headers.get("Retry-After"));
          failures = 0;
          if (waiting.length) flush();
        },
        () => {
          landed();
          failed();
        },
      );
  };

  // The page may end now: there may be no other moment.
  const leave = () => {
    flush(true);
    store((s) => {
      s.removeItem(saved);
      const left = [].concat(...flying, waiting);
      if (left.length) s[saved] = JSON.stringify(left.map((e) => e[0]));
    });
  };

  const here = () => location.pathname + (options.hash == "on" ? location.hash : "");

  // track is what a page calls. Whatever it is given, it throws nothing into the page.
  const track = (event, props, more) => {
    try {
      if (event == "$user") {
        user = text(props);
        return;
      }
      more = more || {};
      if (event == "page_view") props = Object.assign({ page: here() }, props);
      const who = text(more.user) || user || visitor();
      hold(
        JSON.stringify({
          id: more.id || random(),
          event,
          user: who || undefined,
          ts: more.ts || Date.now(),
          value: more.value,
          props: flat(props),
        }),
      );
      if (waiting.length >= BATCH && !failures) flush();
      else if (!timer) later(LINGER);
    } catch (e) {
      console.error("rollcall:", e);
    }
  };

  const view = (props) => {
    path = here();
    track("page_view", props);
  };

  const moved = () => {
    if (here() != path) view();
  };

  const start = () => {
    if (window.rollcall.version) return; // the page has the script twice
    const before = window.rollcall.q || [];
    window.rollcall = track;
    track.version = version;
    track.q = { push: (args) => track(...args) }; // for those who kept the stub

    store((s) => {
      const left = JSON.parse(s[saved] || "[]");
      s.removeItem(saved);
      left.forEach(hold);
    });
    before.forEach((args) => track(...args));

    if (options.auto != "off") {
      const host = document.referrer.split("/")[2];
      view({ referrer: host == location.host ? null : host });
      for (const name of ["pushState", "replaceState"]) {
        const original = history[name];
        history[name] = function () {
          original.apply(this, arguments);
          moved();
        };
      }
      if (window.navigation) navigation.addEventListener("currententrychange", moved); // routers that don't use history
      addEventListener("popstate", moved);
      addEventListener("hashchange", moved);
      addEventListener("pageshow", (e) => {
        if (e.persisted) view();
      });
    }
    addEventListener("online", () => flush());
    addEventListener("pagehide", leave);
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState == "hidden") leave();
    });
    if (waiting.length) later(LINGER);
  };

  // Calls until the start are kept, as the stub of docs/browser.md keeps those before the script has come.
  window.rollcall =
    window.rollcall ||
    function () {
      (window.rollcall.q = window.rollcall.q || []).push(arguments);
    };
  // A page that is only prepared has not been seen yet.
  if (document.prerendering) document.addEventListener("prerenderingchange", start, { once: true });
  else start();
})();
