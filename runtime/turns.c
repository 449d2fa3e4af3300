/* What became of answers, and corrections that come later.
 *
 * The engine sees tokens; whether they called a tool is known to the client once it has read them. So an answer's
 * pages get the class that the request made likely, and the last answers are remembered for a correction.
 * Thread: esp_turn_over is any thread's, the rest the engine's. Does not decide classes; radix/life.c does.
 */
#include "runtime/engine_impl.h"

void esp_turn_over(esp_engine *engine, esp_request_id id, bool comes_back)
{
    pthread_mutex_lock(&engine->slots_lock);
    engine->told[engine->n_told_turns++ % ESP_ENGINE_TURNS] = (struct esp_told){id, comes_back};
    pthread_mutex_unlock(&engine->slots_lock);
}

void esp_engine_end_turn(struct esp_engine *engine, const struct esp_seq *seq)
{
    if (seq->turn.node.v != ESP_NODE_NONE.v) {
        engine->ended[engine->n_ended++ % ESP_ENGINE_TURNS] = (struct esp_ended){seq->job->id, seq->turn};
    }
}

static void correct(struct esp_engine *engine, const struct esp_told *told)
{
    uint32_t n = engine->n_ended < ESP_ENGINE_TURNS ? engine->n_ended : ESP_ENGINE_TURNS;
    for (uint32_t i = 0; i < n; i++) {
        if (engine->ended[i].id == told->id) {
            esp_lease_correct(&engine->sched.lease, &engine->ended[i].turn, told->comes_back);
        }
    }
}

void esp_engine_correct_turns(struct esp_engine *engine)
{
    pthread_mutex_lock(&engine->slots_lock);
    uint32_t n = engine->n_told_turns < ESP_ENGINE_TURNS ? engine->n_told_turns : ESP_ENGINE_TURNS;
    for (uint32_t i = 0; i < n; i++) {
        correct(engine, &engine->told[i]);
    }
    engine->n_told_turns = 0;
    pthread_mutex_unlock(&engine->slots_lock);
}
