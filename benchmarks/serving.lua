-- Load for wrk: each thread sends the requests of its file in turn, and compares every answer with the right one.
-- Arguments: the file without its number, seconds from one request of a thread to the next (0: at once).
-- A line of a file is the body of a request, a tab, and the body of the right answer.
local ffi = require("ffi")
ffi.cdef [[ typedef struct { long s; long ns; } regard_time; int clock_gettime(int, regard_time *); ]]
local threads = {}

function setup(thread)
   thread:set("id", #threads)
   table.insert(threads, thread)
end

local function now()
   local time = ffi.new("regard_time")
   ffi.C.clock_gettime(1, time)
   return tonumber(time.s) + tonumber(time.ns) / 1e9
end

function init(arguments)
   requests, answers, place = {}, {}, 0
   waiting = {}  -- the places of requests without an answer; wrk may send two after it has connected again
   for line in io.lines(arguments[1] .. id) do
      local tab = line:find("\t", 1, true)
      table.insert(requests, wrk.format("POST", "/translate", { ["Content-Type"] = "application/json" }, line:sub(1, tab - 1)))
      table.insert(answers, line:sub(tab + 1))
   end
   pause = tonumber(arguments[2])
   math.randomseed(id)  -- before the first number, or all threads begin at the same time
   due = now() + math.min(pause, 5) * math.random()  -- the server closes a connection without a request after 10 s
   right, wrong, busy, other, statuses = 0, 0, 0, 0, ""
   differing = io.open(arguments[1] .. id .. ".wrong", "w")
end

function delay()
   local wait = math.max(0, due - now())
   due = due + pause
   return 1000 * wait
end

function request()
   place = place % #requests + 1
   table.insert(waiting, place)
   return requests[place]
end

function response(status, headers, body)
   local candidates = {}
   for number, sent in ipairs(waiting) do candidates[number] = answers[sent] end
   local found = 1
   while candidates[found] and candidates[found] ~= body do found = found + 1 end
   local known = status == 200 and candidates[found]
   for _ = 1, known and found or 1 do table.remove(waiting, 1) end  -- a broken connection leaves some without an answer
   if known then
      right = right + 1
   elseif status == 200 then
      wrong = wrong + 1
      differing:write(body, "\t", table.concat(candidates, "\t"), "\n")
      differing:flush()
   elseif status == 429 and headers["Retry-After"] or status == 429 and headers["retry-after"] then
      busy = busy + 1
   else
      other = other + 1
      statuses = statuses .. status .. " "
   end
end

function done(summary, latency)
   local total, statuses = { right = 0, wrong = 0, busy = 0, other = 0 }, ""
   for _, thread in ipairs(threads) do
      for name in pairs(total) do total[name] = total[name] + thread:get(name) end
      statuses = statuses .. thread:get("statuses")
   end
   local errors = summary.errors
   if total.other + errors.connect + errors.read + errors.write + errors.timeout > 0 then
      io.stderr:write(string.format("statuses: %s; errors of connecting: %d, reading: %d, writing: %d; late: %d\n",
         statuses, errors.connect, errors.read, errors.write, errors.timeout))
   end
   io.write(string.format(
      '\nRESULT {"right": %d, "wrong": %d, "busy": %d, "other": %d, "broken": %d, "seconds": %.3f, "p50": %.6f, "p99": %.6f}\n',
      total.right, total.wrong, total.busy, total.other, errors.connect + errors.read + errors.write + errors.timeout,
      summary.duration / 1e6, latency:percentile(50) / 1e6, latency:percentile(99) / 1e6))
end
