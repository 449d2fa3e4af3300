/* The Messages API (Anthropic's), between its two halves: requests (messages_request.c), answers (api_messages.c). */
#ifndef ESP_FRONTEND_MESSAGES_H
#define ESP_FRONTEND_MESSAGES_H

#include "frontend/adapt.h"

/* Fills adapt's chat request from its request; counting needs no max_tokens. False: the exchange has its answer. */
bool esp_messages_convert(struct esp_adapt *adapt, bool counting);

#endif
